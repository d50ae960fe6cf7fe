package relockotel_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant"
	"github.com/relock-go/relock/relockotel"
)

// A fixture is a Telemetry with a reader, an exporter and sessions to observe.
type fixture struct {
	*relockotel.Telemetry
	t      testing.TB
	reader *sdkmetric.ManualReader
	spans  *tracetest.InMemoryExporter
	tracer trace.Tracer // the caller's tracer provider

	sessions []*reentrant.Session // that are open
	flushed  chan struct{}        // has a value when one of the observers has observed all events
}

func newFixture(t testing.TB, opts ...relockotel.Option) *fixture {
	t.Helper()
	s := &fixture{t: t, reader: sdkmetric.NewManualReader(), spans: tracetest.NewInMemoryExporter(), flushed: make(chan struct{})}
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(s.spans))
	s.tracer = tracers.Tracer("caller")
	var err error
	s.Telemetry, err = relockotel.New(append([]relockotel.Option{
		relockotel.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(s.reader))),
		relockotel.WithTracerProvider(tracers),
	}, opts...)...)
	require.NoError(t, err)
	return s
}

// session opens a session with an observer that the Telemetry watches.
func (f *fixture) session(b backend.Backend, opts ...reentrant.Option) *reentrant.Session {
	f.t.Helper()
	session, err := reentrant.NewSession(b, append(opts, reentrant.WithObserver(marked{f.Observer(), f.flushed}))...)
	require.NoError(f.t, err)
	stop := f.Watch(session)
	f.sessions = append(f.sessions, session)
	f.t.Cleanup(func() {
		f.sessions = nil
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = session.Close(ctx)
		stop()
	})
	return session
}

// A marked observer does not see the calls of flush.
type marked struct {
	reentrant.Observer
	flushed chan<- struct{}
}

func (m marked) Observe(ctx context.Context, e reentrant.Event) {
	if ctx.Value(flushKey{}) != nil {
		m.flushed <- struct{}{}
		return
	}
	m.Observer.Observe(ctx, e)
}

type flushKey struct{}

// flush waits until everything that has happened was observed: a call that fails at once makes an event that comes
// after all others.
func (f *fixture) flush() {
	for _, session := range f.sessions {
		_ = session.NewLock("").Lock(context.WithValue(context.Background(), flushKey{}, true))
		<-f.flushed
	}
}

// metrics reads all metrics.
func (f *fixture) metrics() map[string]metricdata.Metrics {
	f.t.Helper()
	f.flush()
	var read metricdata.ResourceMetrics
	require.NoError(f.t, f.reader.Collect(context.Background(), &read))
	metrics := map[string]metricdata.Metrics{}
	for _, scope := range read.ScopeMetrics {
		for _, m := range scope.Metrics {
			metrics[m.Name] = m
		}
	}
	return metrics
}

// count returns the values of a counter or an up-down counter by attributes, which have the form "key=value,key=value".
func (f *fixture) count(name string) map[string]int64 {
	f.t.Helper()
	counts := map[string]int64{}
	if m, ok := f.metrics()[name]; ok {
		for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
			counts[text(p.Attributes)] = p.Value
		}
	}
	return counts
}

// times returns count and sum of a histogram by attributes.
func (f *fixture) times(name string) map[string]times {
	f.t.Helper()
	all := map[string]times{}
	if m, ok := f.metrics()[name]; ok {
		for _, p := range m.Data.(metricdata.Histogram[float64]).DataPoints {
			all[text(p.Attributes)] = times{p.Count, p.Sum}
		}
	}
	return all
}

type times struct {
	count uint64
	sum   float64 // in seconds
}

func text(set attribute.Set) string { return set.Encoded(attribute.DefaultEncoder()) }

// caller returns the context of a caller, with the given name and a span of its own.
func (f *fixture) caller(name string) (context.Context, trace.Span) {
	return f.tracer.Start(reentrant.WithOwner(context.Background(), name), name)
}
