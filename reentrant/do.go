package reentrant

import (
	"context"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/relock-go/relock/reentrant/internal/core"
)

// Do runs fn while holding the lock: Lock, fn, Unlock. The context that fn gets ends when ctx does, and with cause
// [ErrLost] at the moment the hold is lost, so that fn can stop before another owner begins. If fn panics, Do unlocks and
// goes on panicking.
//
// A goroutine that fn starts is another owner, but with that context, and until Do returns, it can ask about the hold:
// [Lock.Lost], [Lock.Token], [Lock.Verify], [Lock.TrustedUntil], [Lock.HoldCount] and [Lock.IsHeldByCurrentOwner] are then
// about the owner that called Do, unless the goroutine has the lock itself or the context names an owner ([WithOwner]).
// Lock and Unlock are always the goroutine's own: its Lock waits, and its Unlock returns [ErrNotHeld].
//
// If Lock fails, Do returns Lock's error without calling fn. Otherwise Do returns fn's error joined with Unlock's error. Unlock's
// error is ErrLost if the hold was lost meanwhile, so Do then returns an error even if fn returned nil. If fn itself returns
// ErrLost, or fails because the loss ended its context, Do returns one error in place of the two.
func (l *Lock) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	if err := l.Lock(ctx); err != nil {
		return err
	}
	return l.run(ctx, fn)
}

// DoValue calls fn through do, and returns what fn returns: a Do for functions with a result. do is a method such as
// [Lock.Do], [RWLock.Do], [RWLock.RDo] or [MultiLock.Do], and decides everything else:
//
//	balance, err := reentrant.DoValue(ctx, account.Do, func(ctx context.Context) (int, error) { … })
//
// The error is that of do. So it may come with a value: fn returned the value, and then the hold was lost, or Unlock failed.
// If do did not call fn, since ctx had ended for instance, the value is zero.
func DoValue[T any](ctx context.Context, do func(ctx context.Context, fn func(ctx context.Context) error) error, fn func(ctx context.Context) (T, error)) (value T, err error) {
	err = do(ctx, func(ctx context.Context) (err error) {
		value, err = fn(ctx)
		return err
	})
	return value, err
}

// TryDo is [Lock.Do] with [Lock.TryLock] in place of Lock: it runs fn if the lock is free (or the caller's own), and reports
// whether it ran fn. It returns false and no error if another owner has the lock, and false and TryLock's error if TryLock
// failed. If it ran fn, it returns true and the error that Do would return.
func (l *Lock) TryDo(ctx context.Context, fn func(ctx context.Context) error) (bool, error) {
	ok, err := l.TryLock(ctx)
	if !ok || err != nil {
		return false, err
	}
	return true, l.run(ctx, fn)
}

// TryDoFor is [Lock.TryDo] with [Lock.TryLockFor] in place of TryLock: it runs fn if the caller's turn comes within wait. wait
// does not bound fn.
func (l *Lock) TryDoFor(ctx context.Context, wait time.Duration, fn func(ctx context.Context) error) (bool, error) {
	ok, err := l.TryLockFor(ctx, wait)
	if !ok || err != nil {
		return false, err
	}
	return true, l.run(ctx, fn)
}

// run calls fn while the caller holds the lock, and then unlocks it.
func (l *Lock) run(ctx context.Context, fn func(ctx context.Context) error) (err error) {
	carried, end := core.Inside(ctx, l.bound())
	within, cancel := context.WithCancelCause(carried)
	forget := l.onLoss(ctx, &cancel)
	defer func() {
		forget()
		end()
		cancel(nil)
		err = afterDo(ctx, within, err, l.Unlock(ctx))
	}()
	return l.session.call(within, l.handle.Name, fn)
}

// call calls fn, with a profiler label if the session has the option [WithProfilerLabels].
func (s *session) call(ctx context.Context, name string, fn func(ctx context.Context) error) (err error) {
	if !s.core.Config.Profiled {
		return fn(ctx)
	}
	pprof.Do(ctx, pprof.Labels("relock.lock", name), func(ctx context.Context) { err = fn(ctx) })
	return err
}

// onLoss arranges that cancel is called with ErrLost when the caller's hold is lost, until the returned function is
// called.
func (l *Lock) onLoss(ctx context.Context, cancel *context.CancelCauseFunc) (forget func()) {
	var notifier *core.LossNotifier
	if owner, err := l.asker(ctx); err == nil {
		notifier = l.handle.NotifierOf(owner)
	}
	if notifier == nil {
		(*cancel)(ErrLost)
		return func() {}
	}
	notifier.Add(cancel)
	return func() { notifier.Remove(cancel) }
}

// Lost returns a channel that is closed when the caller's hold is lost: at the latest when this process can no longer trust
// the hold's lease, which is before the lease ends in Redis. The channel stays open if the hold ends by Unlock. For a caller
// without a hold the channel is already closed. ctx provides only the owner.
func (l *Lock) Lost(ctx context.Context) <-chan struct{} {
	if owner, err := l.asker(ctx); err == nil {
		if notifier := l.handle.NotifierOf(owner); notifier != nil {
			return notifier.Lost
		}
	}
	return core.AlreadyLost
}

// Locker returns the lock as a sync.Locker for the owner of ctx, for code that wants one. Its methods panic with
// the error where Lock and Unlock return one, as a broken sync.Mutex would.
func (l *Lock) Locker(ctx context.Context) sync.Locker { return locker{ctx, l.Lock, l.Unlock} }

type locker struct {
	ctx          context.Context
	lock, unlock func(context.Context) error
}

func (l locker) Lock()   { must(l.lock(l.ctx)) }
func (l locker) Unlock() { must(l.unlock(l.ctx)) }

func must(err error) {
	if err != nil {
		panic(err)
	}
}
