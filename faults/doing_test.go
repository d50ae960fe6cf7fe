package faults

import (
	"context"
	"time"

	"github.com/relock-go/relock/reentrant"
)

// A doer has two methods of a lock, such as TryDo and TryDoFor, that run a function while its owner has the lock.
type doer struct {
	do    func(context.Context, func(context.Context) error) (bool, error)
	doFor func(context.Context, time.Duration, func(context.Context) error) (bool, error)
}

func permitDoer(m *reentrant.Semaphore, n int) doer {
	return doer{
		do: func(ctx context.Context, fn func(context.Context) error) (bool, error) { return m.TryDo(ctx, n, fn) },
		doFor: func(ctx context.Context, wait time.Duration, fn func(context.Context) error) (bool, error) {
			return m.TryDoFor(ctx, n, wait, fn)
		},
	}
}

// runs uses a part within a function that d runs. The function's context must end with the hold, and not before.
func (h *hand) runs(ctx context.Context, p *part, d doer) {
	inner := *p
	inner.timed = true
	var f running
	inner.try = func(context.Context) (bool, error) {
		return f.begin(func(fn func(context.Context) error) (bool, error) { return d.do(h.own, fn) })
	}
	inner.tryFor = func(_ context.Context, wait time.Duration) (bool, error) {
		return f.begin(func(fn func(context.Context) error) (bool, error) { return d.doFor(h.own, wait, fn) })
	}
	inner.signal = func() <-chan struct{} { return f.ctx.Done() }
	inner.release = f.end
	if h.acquire(ctx, &inner) {
		h.dwell(&inner)
		h.look(&inner)
		h.give(&inner)
	}
}

// running is a function that a doer runs.
type running struct {
	ctx   context.Context //nolint:containedctx // the function's
	over  chan struct{}
	ended chan error
}

// begin returns when the function has begun to run, or will not run.
func (f *running) begin(call func(func(context.Context) error) (bool, error)) (bool, error) {
	begun := make(chan struct{})
	f.over, f.ended = make(chan struct{}), make(chan error, 1)
	refused := make(chan bool, 1)
	go func() {
		ok, err := call(func(ctx context.Context) error {
			f.ctx = ctx
			close(begun)
			<-f.over
			return nil
		})
		refused <- !ok
		f.ended <- err
	}()
	select {
	case <-begun:
		return true, nil
	case <-refused:
		return false, <-f.ended
	}
}

func (f *running) end() error {
	close(f.over)
	return <-f.ended
}
