package relockotel_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
	"github.com/relock-go/relock/relockotel"
)

// named returns the spans with a name, in the order of their ends.
func (f *fixture) named(name string) (found []tracetest.SpanStub) {
	f.flush()
	for _, span := range f.spans.GetSpans() {
		if span.Name == name {
			found = append(found, span)
		}
	}
	return found
}

// one returns the only span with a name.
func (f *fixture) one(name string) tracetest.SpanStub {
	f.t.Helper()
	found := f.named(name)
	require.Len(f.t, found, 1, name)
	return found[0]
}

func TestACallAndItsHoldAreSpansOfTheCallersTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t)
		session := s.session(memory.New())
		hold(t, session, "a") // this call is in no trace
		begun := time.Now()
		ctx, span := s.caller("b")
		var token reentrant.Token
		done := make(chan struct{})
		go func() {
			defer close(done)
			l := session.NewLock("x")
			assert.NoError(t, l.Lock(ctx))
			token, _ = l.Token(ctx)
			time.Sleep(2 * second)
			assert.NoError(t, l.Unlock(reentrant.WithOwner(context.Background(), "b")), "by a call in another trace")
		}()
		synctest.Wait()
		time.Sleep(3 * second)
		release(t, session, "a")
		<-done
		span.End()

		call, held := s.one("relock.acquire"), s.one("relock.hold")
		for _, child := range []tracetest.SpanStub{call, held} {
			assert.Equal(t, span.SpanContext().SpanID(), child.Parent.SpanID())
			assert.Equal(t, span.SpanContext().TraceID(), child.SpanContext.TraceID())
			assert.Contains(t, child.Attributes, attribute.String("relock.lock.name", "x"))
			assert.Contains(t, child.Attributes, attribute.Int64("relock.token", int64(token)))
			assert.Equal(t, codes.Unset, child.Status.Code)
		}
		assert.Equal(t, []time.Time{begun, begun.Add(3 * second)}, []time.Time{call.StartTime, call.EndTime})
		assert.Equal(t, []time.Time{begun.Add(3 * second), begun.Add(5 * second)}, []time.Time{held.StartTime, held.EndTime})
		assert.Contains(t, call.Attributes, attribute.String("relock.result", "acquired"))
		assert.Contains(t, held.Attributes, attribute.String("relock.result", "released"))
		require.Len(t, held.Links, 1)
		assert.Equal(t, call.SpanContext.SpanID(), held.Links[0].SpanContext.SpanID())
	})
}

func TestReentryIsACallWithoutAHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t)
		l := s.session(memory.New()).NewLock("x")
		ctx, _ := s.caller("a")
		require.NoError(t, l.Lock(ctx))
		require.NoError(t, l.Lock(ctx))
		require.NoError(t, l.Unlock(ctx))
		require.Empty(t, s.named("relock.hold"))
		require.NoError(t, l.Unlock(ctx))
		calls := s.named("relock.acquire")
		require.Len(t, calls, 2)
		assert.Contains(t, calls[1].Attributes, attribute.String("relock.result", "reentered"))
		assert.Contains(t, calls[1].Attributes, attribute.Int64("relock.token", 1))
		s.one("relock.hold")
	})
}

func TestAFailedCallIsASpanWithAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t)
		b := memory.New()
		session := s.session(b)
		ctx, _ := s.caller("a")
		b.SetFault(memory.Script(memory.Acquire, memory.Refuse("NOPERM")))
		require.Error(t, session.NewLock("x").Lock(ctx))
		call := s.one("relock.acquire")
		assert.Equal(t, codes.Error, call.Status.Code)
		assert.Contains(t, call.Status.Description, "NOPERM")
		assert.Contains(t, call.Attributes, attribute.String("error.type", "refused"))

		s.flush()
		s.spans.Reset()
		hold(t, session, "b")
		ok, err := session.NewLock("x").TryLock(ctx)
		require.NoError(t, err)
		require.False(t, ok)
		call = s.one("relock.acquire")
		assert.Equal(t, codes.Unset, call.Status.Code, "it is no error that another owner has the lock")
		assert.Contains(t, call.Attributes, attribute.String("relock.result", "busy"))

		s.flush()
		s.spans.Reset()
		require.ErrorIs(t, session.NewLock("x").Resume(reentrant.WithPortableOwner(ctx, "p")), reentrant.ErrNotHeld)
		assert.Equal(t, codes.Unset, s.one("relock.acquire").Status.Code, "it is no error that there is no hold")
	})
}

func TestALossIsAnErrorOfTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t)
		b := memory.New()
		session := s.session(b, reentrant.WithLease(3*second))
		ctx, _ := s.caller("a")
		l := session.NewLock("x")
		require.NoError(t, l.Lock(ctx))
		b.SetFault(memory.Script(memory.Renew, memory.Lose))
		time.Sleep(3 * second)
		begun := time.Now()
		b.Partition("A", true)
		<-l.Lost(ctx)
		synctest.Wait()
		held := s.one("relock.hold")
		assert.Equal(t, codes.Error, held.Status.Code)
		assert.Contains(t, held.Status.Description, "lost")
		assert.Contains(t, held.Attributes, attribute.String("error.type", "lost"))
		assert.True(t, held.EndTime.After(begun) && held.EndTime.Before(begun.Add(3*second)), "%v", held.EndTime)
		var events []string
		for _, e := range held.Events {
			events = append(events, e.Name)
		}
		assert.Equal(t, []string{"renewal failing", "renewal recovered", "renewal failing"}, events)
	})
}

// The lock is released for this process, and Redis did not confirm it.
func TestAnUnlockOfUnknownOutcomeIsAnErrorOfTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t)
		b := memory.New()
		ctx, _ := s.caller("a")
		l := s.session(b).NewLock("x")
		require.NoError(t, l.Lock(ctx))
		b.SetFault(func(op memory.Op) (v memory.Verdict) {
			v.Lost = op.Verb == memory.Release
			return v
		})
		require.Error(t, l.Unlock(ctx))
		held := s.one("relock.hold")
		assert.Equal(t, codes.Error, held.Status.Code)
		assert.Contains(t, held.Attributes, attribute.String("error.type", "error"))
		assert.Contains(t, held.Attributes, attribute.String("relock.result", "released"))
	})
}

func TestAwaitEndsAHoldAndBeginsAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t)
		l := s.session(memory.New()).NewLock("x")
		ctx, _ := s.caller("a")
		require.NoError(t, l.Lock(ctx))
		_, err := l.NewCondition("c").AwaitFor(ctx, second)
		require.NoError(t, err)
		require.Len(t, s.named("relock.hold"), 1)
		require.NoError(t, l.Unlock(ctx))
		holds := s.named("relock.hold")
		require.Len(t, holds, 2)
		assert.Len(t, s.named("relock.acquire"), 2)
		assert.Equal(t, second, holds[1].StartTime.Sub(holds[0].EndTime))
	})
}

func TestAResumedHoldIsOneSpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t)
		l := s.session(memory.New()).NewLock("x")
		ctx, _ := s.caller("a")
		ctx = reentrant.WithPortableOwner(ctx, "p")
		require.NoError(t, l.Lock(ctx))
		time.Sleep(second)
		require.NoError(t, l.Resume(ctx))
		require.NoError(t, l.Unlock(ctx))
		held := s.one("relock.hold")
		assert.Equal(t, second, held.EndTime.Sub(held.StartTime))
		require.Len(t, held.Events, 1)
		assert.Equal(t, "lock resumed", held.Events[0].Name)
	})
}

// If another session of the same process resumes a hold, the first session has lost it.
func TestAHoldThatMovesIsASpanInEachSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t)
		b := memory.New()
		from, to := s.session(b).NewLock("x"), s.session(b).NewLock("x")
		ctx, _ := s.caller("a")
		ctx = reentrant.WithPortableOwner(ctx, "p")
		require.NoError(t, from.Lock(ctx))
		require.NoError(t, to.Resume(ctx))
		<-from.Lost(ctx)
		synctest.Wait()
		assert.Equal(t, codes.Error, s.one("relock.hold").Status.Code)
		require.NoError(t, to.Unlock(ctx))
		holds := s.named("relock.hold")
		require.Len(t, holds, 2)
		assert.Equal(t, codes.Unset, holds[1].Status.Code)
	})
}

// If observers are too slow, the event of a hold's end may be dropped: its span then ends when the next hold begins.
func TestAHoldWhoseEndWasDropped(t *testing.T) {
	s := newFixture(t)
	o := s.Observer()
	ctx, _ := s.caller("a")
	at := time.Now()
	o.Observe(ctx, reentrant.Event{Kind: reentrant.EventAcquired, At: at, Lock: "x", Token: 1})
	o.Observe(ctx, reentrant.Event{Kind: reentrant.EventAcquired, At: at.Add(second), Lock: "x", Token: 2})
	assert.Contains(t, s.one("relock.hold").Attributes, attribute.Int64("relock.token", 1))
	o.Observe(ctx, reentrant.Event{Kind: reentrant.EventReleased, At: at.Add(2 * second), Lock: "x", Token: 2})
	for _, held := range s.named("relock.hold") {
		assert.Equal(t, second, held.EndTime.Sub(held.StartTime))
	}
}

// An asked sampler counts how often it is asked, and samples no span.
type asked struct{ times int }

func (a *asked) ShouldSample(p trace.SamplingParameters) trace.SamplingResult {
	a.times++
	return trace.SamplingResult{Decision: trace.Drop}
}

func (*asked) Description() string { return "asked" }

func TestACallThatIsNotTracedCostsNothing(t *testing.T) {
	sampler := &asked{}
	s := newFixture(t, relockotel.WithTracerProvider(trace.NewTracerProvider(trace.WithSampler(sampler))))
	session := s.session(memory.New())
	hold(t, session, "a")
	release(t, session, "a")
	unsampled := oteltrace.ContextWithSpanContext(as("a"), oteltrace.NewSpanContext(oteltrace.SpanContextConfig{
		TraceID: oteltrace.TraceID{1}, SpanID: oteltrace.SpanID{1},
	}))
	require.NoError(t, session.NewLock("x").Lock(unsampled))
	release(t, session, "a")
	s.flush()
	assert.Zero(t, sampler.times)

	ctx, _ := s.caller("a") // this provider drops spans whose parents are kept by other providers
	require.NoError(t, session.NewLock("x").Lock(ctx))
	release(t, session, "a")
	s.flush()
	assert.Equal(t, 1, sampler.times, "no hold of a call that is dropped")

	event := reentrant.Event{Kind: reentrant.EventAcquired, Lock: "x", Token: 1}
	o := s.Observer()
	fewest := math.Inf(1) // what other goroutines of the process do can only add to the count
	for range 10 {
		fewest = min(fewest, testing.AllocsPerRun(100, func() { o.Observe(unsampled, event) }))
	}
	assert.LessOrEqual(t, fewest, 2.0)
}

// Both scopes have a version: a backend shows it with the data, to distinguish releases.
func TestScopesHaveAVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t)
		ctx, span := s.caller("b")
		require.NoError(t, s.session(memory.New()).NewLock("x").Lock(ctx))
		span.End()
		assert.Equal(t, "devel", s.one("relock.acquire").InstrumentationScope.Version)
		var read metricdata.ResourceMetrics
		require.NoError(t, s.reader.Collect(context.Background(), &read))
		require.Len(t, read.ScopeMetrics, 1)
		assert.Equal(t, "devel", read.ScopeMetrics[0].Scope.Version)
	})
}
