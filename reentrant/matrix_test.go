package reentrant_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/reentrant"
)

// The matrix calls every exported function and method of the package while its node fails in every way, under every
// kind of context, in virtual time:
//
//	rows (matrix_methods_test.go, matrix_shared_test.go)
//	   ×  failures (matrix_failures_test.go)  ×  contexts  ─▶  checks (matrix_check_test.go)
//
// A cell is one of these calls. There are two nodes (matrix_nodes_test.go). The locks of the call are on the far one, which
// fails; the near one works. The context of the call is the cell's. The caller keeps what it gets until the checks have
// compared that with the result (matrix_holdings_test.go). One cell can be run alone:
//
//	go test ./reentrant -run 'TestMatrix/Lock.Lock-free/hangs/deadline$'
//
// TestMatrixIsComplete fails if a function or method of the package has no row.

const (
	cellLease     = reentrant.DefaultLease
	cellHeartbeat = reentrant.DefaultHeartbeat
	cellCommand   = 2 * time.Second // the longest that one command may take
	cellPermits   = 3
)

// A contextKind is a kind of context. Its field ends is the time from the call to the end of the context; negative: it does
// not end.
type contextKind struct {
	name string
	ends time.Duration
	make func(parent context.Context) (context.Context, context.CancelFunc)
}

const (
	deadlineAfter = 3 * time.Second
	cancelAfter   = 1300 * time.Millisecond
)

var contexts = []contextKind{
	{"endless", -1, func(ctx context.Context) (context.Context, context.CancelFunc) { return ctx, func() {} }},
	{"deadline", deadlineAfter, func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, deadlineAfter)
	}},
	{"cancelled-before", 0, func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return ctx, cancel
	}},
	{"cancelled-during", cancelAfter, func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(cancelAfter, cancel)
		return ctx, cancel
	}},
}

// A modeKind says how the sessions of a cell are made.
type modeKind struct {
	name    string
	options []reentrant.Option
	cohort  bool
	rows    func(r row) bool // reports whether a row is tested in this mode; nil: every row is
}

var modeKinds = []modeKind{
	{name: "registered"},
	{name: "cohort", cohort: true, options: []reentrant.Option{reentrant.WithCohort()}},
	{name: "linger", cohort: true, options: []reentrant.Option{reentrant.WithCohort(), reentrant.WithLinger(5 * time.Second)}},
	// With deadlock detection, sessions record for which locks their owners wait. These records are on the failing node.
	{name: "detection", options: []reentrant.Option{reentrant.WithDeadlockDetection()}, rows: func(r row) bool { return r.waits }},
	// With WithAsyncUnlock, Unlock does not report what the node does, and the lock is not free for other sessions at once.
	{name: "async", options: []reentrant.Option{reentrant.WithAsyncUnlock()}, rows: func(r row) bool {
		return r.bound != boundUnlock && r.state.name != stateLeft.name
	}},
}

func TestMatrix(t *testing.T) { testMatrix(t, modeKinds[0]) }

func TestMatrixCohort(t *testing.T) { testMatrix(t, modeKinds[1]) }

func TestMatrixLinger(t *testing.T) { testMatrix(t, modeKinds[2]) }

func TestMatrixDeadlockDetection(t *testing.T) { testMatrix(t, modeKinds[3]) }

func TestMatrixAsyncUnlock(t *testing.T) { testMatrix(t, modeKinds[4]) }

func testMatrix(t *testing.T, m modeKind) {
	stride, n := 1, 0
	switch {
	case raceEnabled && (m.cohort || m.rows != nil):
		stride = testsize.Of(1, 11)
	case !raceEnabled:
		stride = testsize.Of(1, 37)
	}
	for _, r := range rows {
		if m.rows != nil && !m.rows(r) {
			continue
		}
		for _, f := range failures {
			for _, x := range contexts {
				if r.bound.local() && (m.cohort || x.ends > 0) {
					continue // a call that sends nothing ends before its context, and is the same in a cohort
				}
				if n++; n%stride != 0 {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%s", r.name, f.name, x.name), func(t *testing.T) { runCell(t, r, f, x, m) })
			}
		}
	}
}

// runCell runs one cell in a bubble. If goroutines are left that nothing ends, that fails the cell and not the whole
// test run.
func runCell(t *testing.T, r row, f failureKind, x contextKind, m modeKind) {
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("goroutines are left: %v", p)
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		c := &cell{t: t, row: r, failure: f, kind: x, mode: m}
		c.run()
	})
}

// A cell is one call of one method, while the node fails in one way, under one kind of context.
type cell struct {
	t       *testing.T
	row     row
	failure failureKind
	kind    contextKind
	mode    modeKind

	*nodes
	trap                *trap
	a, b                *reentrant.Session   // the session under test, and the other one
	lock, third         *reentrant.Lock      // on the far node, of session a
	second              *reentrant.Lock      // on the near node
	theirs              *reentrant.Lock      // lock, of session b
	rw, theirRW         *reentrant.RWLock    // far/rw of both sessions
	sem, theirSem       *reentrant.Semaphore // far/sem, of three permits
	slots, theirSlots   []reentrant.Slot     // of far/sem, those of the caller and of others
	cond                *reentrant.Condition
	multi               *reentrant.MultiLock
	lent                atomic.Int32    // permits of far/sem that the neighbour has, unless they were lost
	lentLost            <-chan struct{} // closed when these permits are lost
	home                context.Context // the caller's context, which does not end
	ctx                 context.Context // the context of the call
	stranger, neighbour context.Context // an owner of session b, and another owner of session a

	others sync.WaitGroup // goroutines that run while the call runs
	result result
	upset  func() // called when the failure has begun, before the call
	failed bool   // the failure has begun
	mended bool
}

// A result is what is known of the call's result.
type result struct {
	ok        bool
	err       error
	panicked  any
	took      time.Duration
	ctxErr    error        // the error of the call's context when the call returned
	had, have holdings     // what the caller had before and after the call
	lost      [things]bool // whether what it had before the call was lost before the call returned
	begun     time.Time
}

func (c *cell) errorf(format string, args ...any) {
	c.t.Helper()
	c.t.Errorf(format, args...)
}

func (c *cell) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Errorf("preparing: %v", err)
	}
}

// background runs f in a goroutine of its own while the call runs.
func (c *cell) background(f func()) { c.others.Go(f) }

func (c *cell) deploy() {
	c.nodes = &nodes{near: memory.New(), far: memory.New()}
	c.trap = &trap{panics: c.failure.observer == "panics", open: make(chan struct{})}
	options := slices.Clone(c.mode.options)
	if c.failure.observer != "" {
		options = append(options, reentrant.WithObserver(c.trap))
	}
	var err error
	c.a, err = reentrant.NewSession(c.nodes, options...)
	c.must(err)
	c.b, err = reentrant.NewSession(c.nodes, c.mode.options...)
	c.must(err)
	c.lock, c.third, c.second, c.theirs = c.a.NewLock("far/x"), c.a.NewLock("far/z"), c.a.NewLock("near/y"), c.b.NewLock("far/x")
	c.rw, c.theirRW = c.a.NewRWLock("far/rw"), c.b.NewRWLock("far/rw")
	c.sem, c.theirSem = c.a.NewSemaphore("far/sem", cellPermits), c.b.NewSemaphore("far/sem", cellPermits)
	c.cond, c.multi = c.lock.NewCondition("c"), reentrant.NewMultiLock(c.second, c.lock)
	c.home = context.Background()
	c.stranger = reentrant.WithOwner(context.Background(), "stranger")
	c.neighbour = reentrant.WithOwner(context.Background(), "neighbour")
}

// run runs a cell, from its beginning to the end of its sessions.
func (c *cell) run() {
	c.deploy()
	prepared, begin, returned, tidy, gone := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() { // the caller is a goroutine of its own from beginning to end
		defer close(gone)
		if prepare := c.row.state.prepare; prepare != nil {
			prepare(c)
		}
		close(prepared)
		<-begin
		c.perform()
		close(returned)
		<-tidy
		c.giveUpHolds()
	}()
	<-prepared
	synctest.Wait()
	if !c.row.late {
		c.fail()
	}
	if c.upset != nil {
		c.upset()
	}
	close(begin)
	if c.row.late {
		time.Sleep(500 * time.Millisecond)
		c.fail()
	}
	stop := make(chan struct{})
	if !c.row.bound.local() {
		c.background(func() { c.probe(stop) })
	}
	c.await(returned)
	synctest.Wait() // what the call has left to the session's goroutines meets the failure, too
	c.mend()
	close(stop)
	select {
	case <-returned:
	default:
		c.errorf("the call does not return, although the node works again:\n%s", stacks())
		return
	}
	c.check()
	close(tidy)
	<-gone
	c.others.Wait()
	c.checkNothingIsLeft()
	c.closeAll()
}

// stacks returns the stacks of this bubble's goroutines.
func stacks() string {
	buf := make([]byte, 1<<20)
	var own []string
	for text := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(text, "synctest bubble") {
			own = append(own, text)
		}
	}
	return strings.Join(own, "\n\n")
}

// perform makes the call and records its result. The caller's goroutine runs it.
func (c *cell) perform() {
	r := &c.result
	r.had = c.has()
	lost := c.losses()
	var cancel context.CancelFunc
	c.ctx, cancel = c.kind.make(c.home)
	defer cancel()
	r.begun = time.Now()
	func() {
		defer func() { r.panicked = recover() }()
		r.ok, r.err = c.row.call(c)
	}()
	r.took, r.ctxErr = time.Since(r.begun), c.ctx.Err()
	if deadline, ok := c.ctx.Deadline(); ok && !time.Now().Before(deadline) { // the session may not have noticed the deadline yet
		r.ctxErr = context.DeadlineExceeded
	}
	for settled := false; !settled; { // reads once more if there was a loss meanwhile, so that have and lost agree
		before := c.lostOf(lost)
		r.have = c.has()
		r.lost = c.lostOf(lost)
		settled = r.lost == before
	}
}

// lostOf returns which of the things that the caller had before the call are lost.
func (c *cell) lostOf(lost [things]<-chan struct{}) (is [things]bool) {
	for thing := range things {
		is[thing] = c.result.had[thing] > 0 && !stillOpen(lost[thing])
	}
	return is
}

// await waits until the call has returned, for as long as the call may take. A call without a limit is then ended: the
// node works again, the holder unlocks, and waiters for a condition are signalled.
func (c *cell) await(returned chan struct{}) {
	most, ends := c.most()
	begun := time.Now()
	select {
	case <-returned:
		return
	case <-time.After(most):
	}
	if ends {
		c.errorf("the call has not returned after %v", most)
	}
	c.mend()
	c.release()
	select {
	case <-returned:
		if ends {
			c.errorf("it took %v", time.Since(begun))
		}
	case <-time.After(3 * cellLease):
	}
}

// fail begins the failure. A failing node has more work than the call: callers have left that waited for other locks,
// and what they left must be cleaned up.
func (c *cell) fail() {
	if c.failure.begin == nil {
		return
	}
	const crowd = 6
	if c.failure.observer == "" && !c.row.bound.local() && !c.row.ends {
		for i := range crowd {
			name := fmt.Sprintf("far/crowd%d", i)
			theirs, mine := c.b.NewLock(name), c.a.NewLock(name)
			c.must(theirs.Lock(c.stranger))
			ctx, cancel := context.WithTimeout(reentrant.WithOwner(context.Background(), "impatient"), time.Millisecond)
			c.background(func() {
				defer cancel()
				_ = mine.Lock(ctx)
			})
			c.background(func() {
				time.Sleep(2 * time.Second)
				if err := theirs.Unlock(c.stranger); !c.failure.forgets {
					c.must(err)
				}
			})
		}
		synctest.Wait()
	}
	c.failed = true
	c.failure.begin(c)
}

// mend ends the failure.
func (c *cell) mend() {
	if c.failed && !c.mended && c.failure.end != nil {
		c.failure.end(c)
	}
	c.mended = true
}

// release ends what a call waits for.
func (c *cell) release() {
	c.othersGiveUp()
	if c.row.awaits {
		c.background(func() {
			ctx, cancel := context.WithTimeout(c.stranger, 2*cellLease)
			defer cancel()
			var l monitor = c.theirs
			if c.row.state.name == stateWrites.name {
				l = c.theirRW
			}
			if l.Lock(ctx) == nil {
				c.must(l.NewCondition("c").SignalAll(ctx))
				c.must(l.Unlock(ctx))
			}
		})
	}
}

// probe uses another lock of the session all the time, and records how long that takes. One of its callers stops waiting:
// what that caller leaves behind must be cleaned up as quickly as before.
func (c *cell) probe(stop chan struct{}) {
	mine, theirs := c.a.NewLock("near/probe"), c.b.NewLock("near/probe")
	prober, rival := reentrant.WithOwner(context.Background(), "prober"), reentrant.WithOwner(context.Background(), "rival")
	timed := func(what string, f func() error) {
		begun := time.Now()
		err := f()
		if took := time.Since(begun); took > cellHeartbeat {
			c.errorf("another lock: %s took %v", what, took)
		}
		if err != nil {
			c.errorf("another lock: %s: %v", what, err)
		}
	}
	for {
		select {
		case <-stop:
			return
		default:
		}
		if c.row.ends {
			return
		}
		timed("Lock", func() error { return mine.Lock(prober) })
		timed("Unlock", func() error { return mine.Unlock(prober) })
		c.must(theirs.Lock(rival))
		ctx, cancel := context.WithTimeout(prober, time.Millisecond)
		if mine.Lock(ctx) == nil {
			c.errorf("another lock: two have it")
		}
		cancel()
		c.must(theirs.Unlock(rival))
		time.Sleep(time.Nanosecond) // with WithAsyncUnlock the release is under way
		timed("TryLock after a caller that left", func() error {
			if ok, err := mine.TryLock(prober); !ok {
				return fmt.Errorf("not taken: %w", err)
			}
			return nil
		})
		timed("Unlock", func() error { return mine.Unlock(prober) })
		time.Sleep(1500 * time.Millisecond)
	}
}

func (c *cell) closeAll() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_ = c.a.Close(ctx)
	_ = c.b.Close(ctx)
}
