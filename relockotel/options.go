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

// WithMeterProvider sets the provider of the metrics. Default: otel.GetMeterProvider.
func WithMeterProvider(p metric.MeterProvider) Option { return func(c *config) { c.meters = p } }

// WithTracerProvider sets the provider of the spans. Default: otel.GetTracerProvider.
func WithTracerProvider(p trace.TracerProvider) Option { return func(c *config) { c.tracers = p } }

// WithLockName puts the attribute relock.lock.name on the metrics that are about one lock. label maps a lock's name to
// one of a few values: names with an id in them, such as order:4711, would make a time series for every order. Several
// goroutines may call it at once, for every event, so it must be quick. If it returns "" the attribute is left out.
// Default: no attribute. (Spans have the whole name in any case.)
func WithLockName(label func(name string) string) Option {
	return func(c *config) { c.lockName = label }
}
