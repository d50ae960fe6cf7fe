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
func (s *fixture) session(b backend.Backend, opts ...reentrant.Option) *reentrant.Session {
	s.t.Helper()
	session, err := reentrant.NewSession(b, append(opts, reentrant.WithObserver(marked{s.Observer(), s.flushed}))...)
	require.NoError(s.t, err)
	stop := s.Watch(session)
	s.sessions = append(s.sessions, session)
	s.t.Cleanup(func() {
		s.sessions = nil
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
func (s *fixture) flush() {
	for _, session := range s.sessions {
		_ = session.NewLock("").Lock(context.WithValue(context.Background(), flushKey{}, true))
		<-s.flushed
	}
}

// metrics reads all metrics.
func (s *fixture) metrics() map[string]metricdata.Metrics {
	s.t.Helper()
	s.flush()
	var read metricdata.ResourceMetrics
	require.NoError(s.t, s.reader.Collect(context.Background(), &read))
	metrics := map[string]metricdata.Metrics{}
	for _, scope := range read.ScopeMetrics {
		for _, m := range scope.Metrics {
			metrics[m.Name] = m
		}
	}
	return metrics
}

// count returns the values of a counter or an up-down counter by attributes, which have the form "key=value,key=value".
func (s *fixture) count(name string) map[string]int64 {
	s.t.Helper()
	counts := map[string]int64{}
	if m, ok := s.metrics()[name]; ok {
		for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
			counts[text(p.Attributes)] = p.Value
		}
	}
	return counts
}

// times returns count and sum of a histogram by attributes.
func (s *fixture) times(name string) map[string]times {
	s.t.Helper()
	all := map[string]times{}
	if m, ok := s.metrics()[name]; ok {
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
func (s *fixture) caller(name string) (context.Context, trace.Span) {
	return s.tracer.Start(reentrant.WithOwner(context.Background(), name), name)
}
