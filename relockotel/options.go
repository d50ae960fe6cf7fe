package relockotel

import (
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// An Option sets a property of a [Telemetry].
type Option func(*config)

type config struct {
	meters   metric.MeterProvider
	tracers  trace.TracerProvider
	lockName func(string) string
}

// WithMeterProvider says where metrics go. Default: otel.GetMeterProvider.
func WithMeterProvider(p metric.MeterProvider) Option { return func(c *config) { c.meters = p } }

// WithTracerProvider says where spans go. Default: otel.GetTracerProvider.
func WithTracerProvider(p trace.TracerProvider) Option { return func(c *config) { c.tracers = p } }

// WithLockName puts the attribute relock.lock.name on the metrics that are about one lock. label maps a lock's name to
// one of a few values: a name with an id in it, such as order:4711, would be a time series for every order. It is called
// for every event, from several goroutines at once, and must be quick. "" leaves the attribute out. Default: no
// attribute. (Spans have the whole name in any case.)
func WithLockName(label func(name string) string) Option {
	return func(c *config) { c.lockName = label }
}
