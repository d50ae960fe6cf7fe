package faults

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/faults/history"
	"github.com/relock-go/relock/reentrant"
)

// The names that the workers of a shared round use, and the numbers of seats.
const (
	sharedRW    = "book"
	sharedSeats = "seats"
	seatsFree   = 5
	mostSeats   = 2 // permits in use at a time, by one worker

	readSide   = " reads"
	writeSide  = " writes"
	permitSide = " has permits"
)

var sides = []string{readSide, writeSide, permitSide}

// A part is one side of a read-write lock, or some permits, as a worker uses it.
type part struct {
	name, side string
	client     string                    // "": the worker's name
	units      int                       // permits
	exclusive  bool                      // a Lock
	terms      terms                     // of a Lock
	timed      bool                      // calls wait for the part with a time limit
	until      func() (time.Time, error) // until when the hold is trusted; nil for permits
	lost       <-chan struct{}

	take    func(context.Context) error
	try     func(context.Context) (bool, error)
	tryFor  func(context.Context, time.Duration) (bool, error)
	release func() error
	signal  func() <-chan struct{}
	held    func() (token uint64, held bool)
	count   func() int // returns the number of holds; may be nil
	wanted  func() <-chan struct{}
}

func readPart(ctx context.Context, l *reentrant.RWLock) *part {
	return &part{
		name: l.Name(), side: readSide,
		take: l.RLock, try: l.TryRLock, tryFor: l.TryRLockFor,
		release: func() error { return l.RUnlock(ctx) },
		signal:  func() <-chan struct{} { return l.Lost(ctx) },
		wanted:  func() <-chan struct{} { return l.Wanted(ctx) },
		until:   func() (time.Time, error) { return l.TrustedUntil(ctx) },
		count:   func() int { return l.ReadHoldCount(ctx) },
		held: func() (uint64, bool) {
			version, err := l.Version(ctx)
			return uint64(version), err == nil || l.ReadHoldCount(ctx) > 0 // a writer has no version
		},
	}
}

func writePart(ctx context.Context, l *reentrant.RWLock) *part {
	return &part{
		name: l.Name(), side: writeSide,
		take: l.Lock, try: l.TryLock, tryFor: l.TryLockFor,
		release: func() error { return l.Unlock(ctx) },
		signal:  func() <-chan struct{} { return l.Lost(ctx) },
		wanted:  func() <-chan struct{} { return l.Wanted(ctx) },
		until:   func() (time.Time, error) { return l.TrustedUntil(ctx) },
		count:   func() int { return l.HoldCount(ctx) },
		held: func() (uint64, bool) {
			token, err := l.Token(ctx)
			return uint64(token), err == nil
		},
	}
}

func permitPart(m *reentrant.Semaphore, n int) *part {
	return &part{
		name: m.Name(), side: permitSide, units: n,
		take:    func(ctx context.Context) error { return m.Acquire(ctx, n) },
		try:     func(ctx context.Context) (bool, error) { return m.TryAcquire(ctx, n) },
		tryFor:  func(ctx context.Context, wait time.Duration) (bool, error) { return m.TryAcquireFor(ctx, n, wait) },
		release: func() error { return m.Release(context.Background(), n) },
		signal:  m.Lost,
		wanted:  m.Wanted,
		held: func() (uint64, bool) {
			m.Lost() // if the session has not noticed a loss yet, Lost takes expired units from all owners
			return 0, true
		},
	}
}

// share is a worker's work with shared holds.
func (w *worker) share(ctx context.Context) {
	book := w.session.NewRWLock(sharedRW)
	seats := w.session.NewSemaphore(sharedSeats, seatsFree)
	for ctx.Err() == nil {
		switch w.random.IntN(8) {
		case 0, 1:
			w.writeShared(ctx, book)
		case 2, 3:
			w.sit(ctx, permitPart(seats, 1+w.random.IntN(mostSeats)))
		default:
			w.read(ctx, readPart(context.Background(), book))
		}
		w.sleep(pace)
	}
}

// read enters the read side, perhaps several times, and reads the register.
func (w *worker) read(ctx context.Context, r *part) {
	if !w.acquireShared(ctx, r) {
		return
	}
	lost := r.signal()
	holds := 1
	for range w.random.IntN(mostHolds) {
		if w.acquireShared(ctx, r) {
			holds++
		}
	}
	if version, ok := w.lookShared(r, lost); ok {
		claim := Claim{Client: w.name, Lock: r.name, Token: version, Side: r.side}
		_ = w.register.Call("Register.Read", claim, &Value{}) // the register knows whether the read was correct
	}
	w.sleep(pace)
	w.linger(r, lost)
	for range holds {
		w.lookShared(r, lost)
		w.releaseShared(r)
	}
}

// writeShared writes to the register under the write side. In some cases it then downgrades to the read side.
func (w *worker) writeShared(ctx context.Context, l *reentrant.RWLock) {
	p, r := writePart(context.Background(), l), readPart(context.Background(), l)
	if !w.acquireShared(ctx, p) {
		return
	}
	lost := p.signal()
	claim, value := Claim{Client: w.name, Lock: p.name, Side: p.side}, Value{}
	token, ok := w.lookShared(p, lost)
	claim.Token = token
	if ok && w.register.Call("Register.Read", claim, &value) == nil && !value.Refused {
		w.sleep(pace)
		claim.Version = value.Version
		_ = w.register.Call("Register.Write", claim, &value) // the register knows whether it accepted the write
	}
	w.linger(p, lost)
	w.lookShared(p, lost)
	reads := w.random.IntN(3) == 0 && w.acquireShared(ctx, r)
	w.lookShared(p, lost)
	w.releaseShared(p)
	if !reads {
		return
	}
	if version, ok := w.lookShared(r, lost); ok {
		_ = w.register.Call("Register.Read", Claim{Client: w.name, Lock: r.name, Token: version, Side: r.side}, &value)
	}
	w.lookShared(r, lost)
	w.releaseShared(r)
}

// sit holds permits for a while.
func (w *worker) sit(ctx context.Context, p *part) {
	if !w.acquireShared(ctx, p) {
		return
	}
	lost := p.signal()
	w.lookShared(p, lost)
	_ = w.register.Call("Register.Turn", Claim{Client: w.name, Lock: p.name, Side: p.side}, &Value{})
	w.sleep(pace)
	w.linger(p, lost)
	w.lookShared(p, lost)
	w.releaseShared(p)
}

// linger sometimes uses a part for longer than a lease.
func (w *worker) linger(p *part, lost <-chan struct{}) {
	if w.random.IntN(longOneIn) != 0 {
		return
	}
	for end := time.Now().Add(w.Lease * 3 / 2); time.Now().Before(end); {
		if _, ok := w.lookShared(p, lost); !ok {
			return
		}
		time.Sleep(lookEvery) // the pause between checks
	}
}

func (p *part) op(kind history.Kind) history.Op {
	return history.Op{Client: p.client, Lock: p.name, Kind: kind, Read: p.side == readSide, Units: p.units}
}

func (w *worker) acquireShared(ctx context.Context, p *part) bool {
	op := w.record(p.op(history.Acquire), func() error {
		soon := time.Duration(w.random.Int64N(int64(tryFor)))
		switch w.random.IntN(4) {
		case 0:
			return taken(p.try(ctx))
		case 1:
			return taken(p.tryFor(ctx, soon))
		case 2:
			ctx, cancel := context.WithTimeout(ctx, soon)
			defer cancel()
			return p.take(ctx)
		default:
			ctx, cancel := context.WithTimeout(ctx, lockFor)
			defer cancel()
			return p.take(ctx)
		}
	})
	w.write(op)
	return op.Outcome == history.OK
}

func (w *worker) releaseShared(p *part) {
	w.write(w.record(p.op(history.Unlock), p.release))
}

// lookShared asks whether the part is still in use. That sends no command. lost is the channel that is closed when the part is
// lost.
func (w *worker) lookShared(p *part, lost <-chan struct{}) (token uint64, ok bool) {
	op := p.op(history.Look)
	op.Process, op.Client, op.Call = w.Name, w.name, history.Now()
	token, held := p.held()
	op.Return = history.Now()
	op.Token = token
	select {
	case <-lost:
		op.Outcome, op.Token = history.Lost, 0
	default:
		if op.Outcome = history.OK; !held {
			op.Outcome = history.Untold
		}
	}
	w.write(op)
	return token, op.Outcome == history.OK
}

// judgeShared waits until the server has nothing of the shared names, and judges their histories.
func (r *round) judgeShared(t *testing.T, dir string) {
	s := session(t, r.servers.master.Addr())
	book, seats := s.NewRWLock(sharedRW), s.NewSemaphore(sharedSeats, seatsFree)
	eventually(t, func() bool {
		a, errA := book.Inspect(t.Context())
		b, errB := seats.Inspect(t.Context())
		return errA == nil && errB == nil && len(a.Holders)+len(a.Waiting)+len(b.Holders)+len(b.Waiting) == 0
	}, "everything was released")

	h := history.SharedHistory{
		Ops: r.ops(), Deaths: r.deaths, Forgets: r.forgets, Lease: roundLease, Permits: map[string]int{sharedSeats: seatsFree},
	}
	began := time.Now()
	v := history.JudgeShared(h)
	sum := r.register.total()
	t.Logf("%d operations, %d holds, %d of them lost, %d deaths, Redis forgot %d times; %d updates, %d refused; judged in %v",
		len(h.Ops), v.Holds, v.Lost, len(h.Deaths), len(h.Forgets), sum.updates, sum.refused, time.Since(began).Round(time.Millisecond))
	assert.Zero(t, sum.lost, "updates of a fenced register")
	assert.Zero(t, sum.stale, "reads of something else under the same version")
	assert.Positive(t, v.Holds)
	for _, f := range v.Findings {
		assert.Fail(t, f.String())
	}
	require.NoError(t, v.Save(dir))
}
