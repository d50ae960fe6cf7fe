package reentrant_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant"
)

// A bound says how long a call may take, according to its documentation.
type bound struct {
	limit   time.Duration // the longest time, whatever its context does; negative: as long as the context lasts
	heeds   bool          // the call ends when its context ends
	after   time.Duration // the longest time after the end of its context
	instant bool          // the call sends no command
	wait    time.Duration // the time limit that the call has as an argument; 0: none
}

const (
	soon    = 20 * time.Millisecond
	forever = -1
	// outlasts is how long a call without a limit is watched before the event that the call waits for. recovers is how long
	// the call may take after that event.
	outlasts = 25 * time.Second
	recovers = cellLease
)

// The bounds.
var (
	// Calls that send no command.
	boundAtOnce = bound{limit: 0, instant: true}
	// Calls that send no command, and check their context first.
	boundCheck = bound{limit: 0, instant: true, heeds: true}
	// One command, which its context ends: TryLock ("one attempt that does not wait"), Verify, Inspect, IsLocked, ForceUnlock.
	boundOneCommand = bound{limit: cellCommand + soon, heeds: true, after: soon}
	// TryAny tries each of two locks once.
	boundTwoCommands = bound{limit: 2*cellCommand + soon, heeds: true, after: soon}
	// Lock and Resume: for as long as the context lasts.
	boundCtx = bound{limit: forever, heeds: true, after: soon}
	// TryLockFor: its time limit, and an eighth of a command's for the last try.
	boundLimit = bound{wait: cellPatience, limit: cellPatience + cellCommand/8 + soon, heeds: true, after: soon}
	// TryAnyFor tries each lock once, and then waits until its time limit. If it got two locks, it releases one.
	boundCommandThenLimit = bound{wait: cellPatience, limit: 2*cellCommand + cellPatience + 2*soon, heeds: true, after: soon}
	// Unlock outlives its context: it "has tried for the length of the lease, at most 6 seconds".
	boundUnlock = bound{limit: 6*time.Second + soon}
	// Signal outlives its context too: it "keeps trying until the hold is lost".
	boundSignal = bound{limit: cellLease}
	// Do unlocks after its context has ended, and a MultiLock releases what it has.
	boundCtxAndUnlock = bound{limit: forever, heeds: true, after: cellLease}
	// TryDo and TryDoFor unlock what they have acquired.
	boundCommandAndUnlock = bound{limit: cellCommand + 6*time.Second + soon, heeds: true, after: cellLease}
	boundLimitAndUnlock   = bound{wait: cellPatience, limit: cellPatience + 6*time.Second + soon, heeds: true, after: cellLease}
	// Await acquires the lock again before it returns, or has lost it: at most a lease after its context or time limit.
	boundAwait    = bound{limit: forever, heeds: true, after: cellLease}
	boundAwaitFor = bound{wait: cellPatience, limit: cellPatience + cellLease, heeds: true, after: cellLease}
	// AwaitUninterruptibly: only a signal ends it.
	boundNone = bound{limit: forever}
	// The channel of Wanted is closed when Redis reports the waiter, the channel of Lost when Redis was silent for a lease.
	boundWanted = bound{limit: cellLease + soon, heeds: true, after: soon}
	// Close waits for holders until its context ends, and a second more for the backend.
	boundClose = bound{limit: forever, heeds: true, after: time.Second + soon}
	// NewSession has no context: it waits ten seconds for the backend.
	boundOpen = bound{limit: 10*time.Second + soon}
)

func (b bound) local() bool { return b.instant }

// most returns how long the call may take in this cell, and whether it ends by itself. If the call does not end by itself,
// most is how long the call is watched.
func (c *cell) most() (most time.Duration, ends bool) {
	b, x := c.row.bound, c.kind
	most, ends = b.limit, b.limit >= 0
	if b.heeds && x.ends >= 0 && (!ends || x.ends+b.after < most) {
		most, ends = x.ends+b.after, true
	}
	if !ends {
		most = outlasts
	}
	return most + time.Millisecond, ends
}

// check checks the call's result.
func (c *cell) check() {
	r := &c.result
	if r.panicked != nil {
		c.errorf("the call panicked: %v", r.panicked)
		return
	}
	c.t.Logf("%v, %v after %v", r.ok, r.err, r.took)
	if !c.row.bound.local() {
		c.checkSentinels()
		c.checkPredicates()
		c.checkUnavailable()
	}
	c.checkContextErrors()
	c.checkHolds()
	c.checkSuccess()
}

// ended reports whether the call's context had ended when the call returned.
func (c *cell) ended() bool { return c.result.ctxErr != nil }

// heeded reports whether the call is of a kind that ends with its context, and its context had ended.
func (c *cell) heeded() bool { return c.row.bound.heeds && c.ended() }

// checkContextErrors checks that the context's error is in the result if, and only if, the end of the context kept the call
// from succeeding.
func (c *cell) checkContextErrors() {
	r := &c.result
	for _, err := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(r.err, err) && !errors.Is(r.ctxErr, err) {
			c.errorf("errors.Is(err, %v), although that of the caller's context is: %v\n%v", err, r.ctxErr, r.err)
		}
	}
	if c.row.bound.heeds && c.kind.ends == 0 && !errors.Is(r.err, context.Canceled) && !c.row.idle {
		c.errorf("the context had ended before the call, and the result is %v, %v", r.ok, r.err)
	}
	timeUp := c.row.bound.wait > 0 && c.kind.ends > c.row.bound.wait // before the context ended
	if c.heeded() && !r.ok && r.took >= c.kind.ends && !timeUp && !errors.Is(r.err, r.ctxErr) {
		c.errorf("the context has ended, and the error does not say so: %v", r.err)
	}
	if !c.row.bound.heeds && errors.Is(r.err, c.ctx.Err()) && c.ctx.Err() != nil {
		c.errorf("the context ends no such call: %v", r.err)
	}
}

// checkSentinels checks that each sentinel in the result is true.
func (c *cell) checkSentinels() {
	r, f := &c.result, &c.failure
	is := func(err error) bool { return errors.Is(r.err, err) }
	if is(reentrant.ErrLost) && !slices.Contains(r.lost[:], true) {
		c.errorf("ErrLost, although nothing was lost: %v", r.err)
	}
	if is(reentrant.ErrClosed) && !c.row.ends {
		c.errorf("ErrClosed, although the session is open: %v", r.err)
	}
	if is(reentrant.ErrNotHeld) && !errors.Is(c.row.want, reentrant.ErrNotHeld) && !is(reentrant.ErrLost) && !f.forgets {
		c.errorf("ErrNotHeld, although it was held: %v", r.err)
	}
	if is(reentrant.ErrNotAcquired) && !errors.Is(c.row.want, reentrant.ErrNotAcquired) {
		c.errorf("ErrNotAcquired, although the lock is free: %v", r.err)
	}
	if !r.ok && r.err == nil && !c.row.busy && (!f.forgets || !c.row.asks) && !f.lies {
		c.errorf("(false, nil), although no owner has the lock")
	}
	if (f.refuses || !c.row.opens && (f.unreachable || f.lies && !c.row.blind)) && c.row.sends && r.err == nil && !c.row.waits && !c.row.awaits && !c.endedByMend() && !c.inherited() {
		c.errorf("no error, although the node did not answer: %v", r.ok)
	}
}

// endedByMend reports whether the call lasted until the node worked again.
func (c *cell) endedByMend() bool { return c.result.took >= outlasts }

// checkPredicates checks Refused and OutcomeUnknown.
func (c *cell) checkPredicates() {
	r, f := &c.result, &c.failure
	if backend.Refused(r.err) && !f.refuses {
		c.errorf("Refused, although nothing was: %v", r.err)
	}
	if f.refuses && c.row.sends && c.kind.ends != 0 && !backend.Refused(r.err) && !c.inherited() {
		c.errorf("the node refused, and the error does not say so: %v", r.err)
	}
	if f.refuses && c.row.sends && !c.row.bound.heeds && !backend.Refused(r.err) && !c.inherited() {
		c.errorf("the node refused, and the error does not say so: %v", r.err)
	}
	if backend.OutcomeUnknown(r.err) && (f.refuses || f.unheard || f.name == "none") {
		c.errorf("OutcomeUnknown, although no command was executed: %v", r.err)
	}
	if f.unanswered && c.row.sends && !c.row.reads && c.upset == nil && r.err != nil && r.took > 0 && !backend.OutcomeUnknown(r.err) && !errors.Is(r.err, reentrant.ErrLost) && (c.row.want == nil || !errors.Is(r.err, c.row.want)) {
		c.errorf("commands were executed, and the error does not say that the outcome is unknown: %v", r.err)
	}
}

// checkUnavailable checks that ErrUnavailable is in the result if the node could not be asked, and nothing else is
// known.
func (c *cell) checkUnavailable() {
	r, f := &c.result, &c.failure
	is := func(err error) bool { return err != nil && errors.Is(r.err, err) }
	unasked := f.unreachable || f.name == "unreachable-for-a-while"
	known := is(reentrant.ErrLost) || is(reentrant.ErrNotHeld) || is(reentrant.ErrClosed) || is(c.row.want)
	if unasked && r.err != nil && r.took > 0 && !known && !c.heeded() && !is(backend.ErrUnavailable) {
		c.errorf("the node could not be asked, and the error does not say so: %v", r.err)
	}
	answers := f.name == "none" || f.refuses || f.forgets || f.observer != "" || f.name == "answers-twice"
	if answers && is(backend.ErrUnavailable) {
		c.errorf("ErrUnavailable, although the node answered: %v", r.err)
	}
}

// inherited reports whether the call may have ended without a command of its own.
func (c *cell) inherited() bool { return c.mode.cohort && c.row.state.holds > 0 }

// checkSuccess checks that a call succeeds if nothing keeps it from that.
func (c *cell) checkSuccess() {
	r, f := &c.result, &c.failure
	healthy := f.name == "none" || f.observer != "" || f.name == "answers-twice"
	possible := healthy || f.mild && c.row.again || c.row.bound.local()
	// A call whose context ends, or whose time limit has passed, may come too late.
	if c.row.bound.heeds && c.kind.ends == 0 || c.ended() && !c.row.bound.local() {
		return
	}
	if b := c.row.bound; !healthy && !b.local() && (b.limit >= 0 && b.limit < passingFor || b.wait > 0 && c.row.state.holds == 0) {
		return
	}
	switch {
	case !possible:
	case c.row.want != nil:
		if !errors.Is(r.err, c.row.want) {
			c.errorf("the result is %v, %v, not %v", r.ok, r.err, c.row.want)
		}
	case r.err != nil:
		c.errorf("the call failed: %v", r.err)
	case r.ok == c.row.busy:
		c.errorf("the result is %v", r.ok)
	}
}

// checkNothingIsLeft checks that the session has nothing when its callers have released everything, and that the node
// has nothing when the leases have ended.
func (c *cell) checkNothingIsLeft() {
	if !c.row.ends {
		time.Sleep(cellLease)
		if n := reentrant.Entries(c.a) + reentrant.SharedNames(c.a); n != 0 {
			c.errorf("the session has something about %d locks", n)
		}
		if st := c.a.Stats(); st.Held != 0 || st.Waiting != 0 {
			c.errorf("the session has %d holds and %d waiters", st.Held, st.Waiting)
		}
	}
	time.Sleep(cellLease + time.Millisecond) // so that leases that end after exactly cellLease are over
	c.checkNode()
	c.checkFree("far/x", c.theirs.TryLock, c.theirs.Unlock)
	c.checkFree("near/y", c.b.NewLock("near/y").TryLock, c.b.NewLock("near/y").Unlock)
	c.checkFree("far/rw", c.theirRW.TryLock, c.theirRW.Unlock)
	c.checkFree("far/sem", func(ctx context.Context) (bool, error) { return c.theirSem.TryAcquire(ctx, cellPermits) },
		func(ctx context.Context) error { return c.theirSem.Release(ctx, cellPermits) })
}

// theirNumber returns the other session's handle of the lock that belongs to number i of the slots of far/sem.
func (c *cell) theirNumber(i int) *reentrant.Lock { return c.b.NewLock(fmt.Sprintf("far/sem#%d", i)) }

// checkNode checks that the nodes have nothing of the cell's names.
func (c *cell) checkNode() {
	names := []string{"far/x", "far/z", "near/y", "far/rw", backend.ConditionsOf("far/rw"), "far/sem"}
	for i := range cellPermits {
		names = append(names, c.theirNumber(i).Name())
	}
	for _, name := range names {
		for _, left := range append(c.far.Left(name), c.near.Left(name)...) {
			c.errorf("%s: %s is left", name, left)
		}
	}
}

// checkFree checks that the other session can acquire the lock with this name, by try. It then gives the lock back, by undo.
func (c *cell) checkFree(name string, try func(context.Context) (bool, error), undo func(context.Context) error) {
	ok, err := try(c.stranger)
	if !ok {
		c.errorf("%s cannot be acquired: %v", name, err)
		return
	}
	c.must(undo(c.stranger))
}

// Every exported function and method of the package has a row in the matrix.
func TestMatrixIsComplete(t *testing.T) {
	has := make(map[string]bool)
	for _, r := range rows {
		has[strings.SplitN(r.name, "-", 2)[0]] = true
	}
	for _, name := range apiNames(t) {
		assert.True(t, has[name], "the matrix has no row for %s", name)
	}
}

func TestMatrixRowsHaveNamesOfTheirOwn(t *testing.T) {
	seen := make(map[string]bool)
	for _, r := range rows {
		assert.False(t, seen[r.name], r.name)
		seen[r.name] = true
	}
}

// apiNames returns the exported functions of the package, found in its source, and the exported methods of its types,
// found by reflection. A type with methods that the matrix does not know is a failure.
func apiNames(t *testing.T) []string {
	var names []string
	for _, file := range sourceFiles(t, ".") {
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			switch {
			case !ok || !f.Name.IsExported():
			case f.Recv == nil:
				names = append(names, f.Name.Name)
			case ast.IsExported(receiver(f)):
				assert.Contains(t, apiTypes, receiver(f), "the matrix does not know this type")
			}
		}
	}
	for name, typ := range apiTypes {
		for i := range typ.NumMethod() {
			names = append(names, name+"."+typ.Method(i).Name)
		}
	}
	slices.Sort(names)
	return names
}

// sourceFiles returns the Go files of a package, apart from its tests.
func sourceFiles(t *testing.T, folder string) []*ast.File {
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)
		files = append(files, file)
	}
	require.NotEmpty(t, files)
	return files
}

// receiver returns the name of a method's type.
func receiver(f *ast.FuncDecl) string {
	typ := f.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	name, _ := typ.(*ast.Ident)
	return name.Name
}
