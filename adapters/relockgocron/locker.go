// Package relockgocron lets the schedulers of gocron in many processes share their jobs: a [Locker] runs each tick of
// a job in one process, an [Elector] runs all jobs in one process.
//
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//
// Both work over a [reentrant.Session]. Leases are renewed while the process lives, so a job may take longer than a
// lease. A process that is killed gives way within its lease.
package relockgocron

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/relock-go/relock/reentrant"
)

// ErrTaken is returned by [Locker.Lock] when another run of the job has the lock, in this process or another.
var ErrTaken = errors.New("another run of the job has the lock")

// A Locker runs each tick of a job in one of the processes: the first one that asks gets the lock of the job's name.
// It is safe for concurrent use.
type Locker struct {
	session *reentrant.Session
	options []reentrant.LockOption
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker returns a Locker whose locks are those of the session, with the names of the jobs. Options are for each lock.
//
// Processes start a tick at slightly different times. A lock is therefore kept for at least splay, counted from when it
// was taken, even if the job or the process ends sooner ([reentrant.WithAtLeast]): a process whose clock is up to splay
// behind finds it taken and skips the tick.
// Splay must be shorter than the interval between two ticks; 0 gives the lock up as soon as the job ends.
func NewLocker(session *reentrant.Session, splay time.Duration, options ...reentrant.LockOption) *Locker {
	return &Locker{session: session, options: append([]reentrant.LockOption{reentrant.WithAtLeast(splay)}, options...)}
}

// Lock makes one attempt to take the lock of a job. It returns an error for which errors.Is(err, [ErrTaken]) if another
// run has it; any other error is that of [reentrant.Lock.TryLock]. In both cases gocron skips the tick in this process.
func (l *Locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	lock := l.session.NewLock(key, l.options...)
	owner := rand.Text() // every run is an owner of its own, so two runs in one process exclude each other
	ok, err := lock.TryLock(reentrant.WithOwner(ctx, owner))
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, fmt.Errorf("relockgocron: lock %q: %w", key, ErrTaken)
	}
	return &run{lock: lock, owner: owner}, nil
}

// A run is the hold of one run of a job.
type run struct {
	lock  *reentrant.Lock
	owner string
}

// Unlock gives the lock up: others can have it when the splay is over. Errors are those of [reentrant.Lock.Unlock]:
// ErrLost means that another process may have run the job meanwhile.
func (r *run) Unlock(ctx context.Context) error {
	return r.lock.Unlock(reentrant.WithOwner(context.WithoutCancel(ctx), r.owner))
}
