package relockotel

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/relock-go/relock/reentrant"
)

// scope names this package to providers.
const scope = "github.com/relock-go/relock/relockotel"

// A Telemetry measures and traces the sessions of a process. It is safe for concurrent use.
type Telemetry struct {
	instruments
	tracer   trace.Tracer
	lockName func(string) string // nil: the lock's name is not on metrics
	reading  metric.Registration

	mu       sync.Mutex
	sessions []*reentrant.Session // sessions that are watched; under mu
	gone     reentrant.Stats      // the sum of the counters of sessions that were forgotten; under mu
}

// New registers the instruments. The error is the meter provider's.
func New(opts ...Option) (*Telemetry, error) {
	c := config{meters: otel.GetMeterProvider(), tracers: otel.GetTracerProvider()}
	for _, o := range opts {
		o(&c)
	}
	meter := c.meters.Meter(scope, metric.WithInstrumentationVersion(version()))
	instruments, err := newInstruments(meter)
	if err != nil {
		return nil, fmt.Errorf("relockotel: %w", err)
	}
	t := &Telemetry{instruments: instruments, lockName: c.lockName}
	t.tracer = c.tracers.Tracer(scope, trace.WithInstrumentationVersion(version()))
	if t.reading, err = meter.RegisterCallback(t.read, t.observables()...); err != nil {
		return nil, fmt.Errorf("relockotel: %w", err)
	}
	t.begin()
	return t, nil
}

// begin starts the counters of rare events at 0. If the first event created the time series, with the value 1, the value
// would not rise, and no alert would see the event.
func (t *Telemetry) begin() {
	ctx := context.Background()
	t.failures.Add(ctx, 0)
	t.recoveries.Add(ctx, 0)
	for _, cause := range causes {
		t.longWaits.Add(ctx, 0, cause)
	}
}

// Observer returns an observer for one session, for [reentrant.WithObserver]. Each session needs its own, because an
// observer finds the span of a hold by its lock and token.
func (t *Telemetry) Observer() reentrant.Observer { return &observer{t: t} }

// Watch adds a session's [reentrant.Session.Stats] to the metrics until stop is called. It costs the locks nothing.
// stop keeps the counters at their last values and drops the reference to the session. A session that lives as long as
// the process needs no stop.
func (t *Telemetry) Watch(s *reentrant.Session) (stop func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sessions = append(t.sessions, s)
	return sync.OnceFunc(func() { t.forget(s) })
}

// forget removes a session and keeps its counters: if a sum fell, it would look like a restart of the process.
func (t *Telemetry) forget(s *reentrant.Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.sessions, s)
	t.sessions = slices.Delete(t.sessions, i, i+1)
	last := s.Stats()
	last.Held, last.Waiting = 0, 0
	t.gone = sum(t.gone, last)
}

// Close stops reading the sessions. Observers go on. The error is the meter provider's.
func (t *Telemetry) Close() error {
	if err := t.reading.Unregister(); err != nil {
		return fmt.Errorf("relockotel: %w", err)
	}
	return nil
}

// read is called when metrics are read. It holds the mutex throughout, so that a session that is forgotten meanwhile is
// counted once; Stats only reads memory.
func (t *Telemetry) read(_ context.Context, o metric.Observer) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.sessions) == 0 && t.gone == (reentrant.Stats{}) {
		return nil // no session was ever watched: zeros would be false
	}
	all := t.gone
	for _, s := range t.sessions {
		all = sum(all, s.Stats())
	}
	o.ObserveInt64(t.held, int64(all.Held))
	o.ObserveInt64(t.waiting, int64(all.Waiting))
	o.ObserveInt64(t.handoffs, int64(all.Handoffs))
	o.ObserveInt64(t.yields, int64(all.Yields))
	o.ObserveInt64(t.renewals, int64(all.Renewals))
	o.ObserveInt64(t.losses, int64(all.Lost))
	o.ObserveInt64(t.commands, int64(all.Commands))
	return nil
}

// sum returns the sum of two sessions' counters.
func sum(a, b reentrant.Stats) reentrant.Stats {
	return reentrant.Stats{
		Held: a.Held + b.Held, Waiting: a.Waiting + b.Waiting, Handoffs: a.Handoffs + b.Handoffs, Yields: a.Yields + b.Yields,
		Renewals: a.Renewals + b.Renewals, Lost: a.Lost + b.Lost, Commands: a.Commands + b.Commands,
	}
}

// about returns the attributes of a measurement of one event.
func (t *Telemetry) about(e reentrant.Event, r result) metric.MeasurementOption {
	if t.lockName == nil && e.Mode == reentrant.ModeLock {
		return plain[r]
	}
	attrs := []attribute.KeyValue{resultKey.String(string(r))}
	if e.Mode != reentrant.ModeLock {
		attrs = append(attrs, modeKey.String(e.Mode.String()))
	}
	if t.lockName != nil {
		if label := t.lockName(e.Lock); label != "" {
			attrs = append(attrs, lockKey.String(label))
		}
	}
	return metric.WithAttributeSet(attribute.NewSet(attrs...))
}
