package machine

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

func has(s set, p Phase) bool { return s&setOf(p) != 0 }

func TestChangeOfPhaseThatIsNotInTheTablePanics(t *testing.T) {
	for from := range phases {
		for to := range phases {
			m := Machine[string]{phase: from}
			if from == to || has(successors[from], to) {
				assert.NotPanics(t, func() { m.enter(to) })
			} else {
				assert.Panics(t, func() { m.enter(to) }, "%v to %v", from, to)
				assert.Equal(t, from, m.phase)
			}
		}
	}
}

// The machine's code writes the phase in one place, and has nothing that can wait or read a clock.
func TestMachineIsPure(t *testing.T) {
	allowed := map[string]bool{"fmt": true, "math": true, "time": true, "github.com/relock-go/relock/backend": true,
		"github.com/relock-go/relock/reentrant/internal/check": true, "github.com/relock-go/relock/reentrant/internal/lease": true}
	clocks := map[string]bool{"Now": true, "Since": true, "Until": true, "After": true, "AfterFunc": true, "NewTimer": true, "Tick": true, "Sleep": true}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	writes := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		for _, i := range file.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			require.NoError(t, err)
			assert.True(t, allowed[path], "%s imports %s", name, path)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt, *ast.ChanType, *ast.SelectStmt, *ast.SendStmt:
				t.Errorf("%s: %T", name, n)
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" {
					assert.False(t, clocks[n.Sel.Name], "%s uses time.%s", name, n.Sel.Name)
				}
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "lease" {
					assert.NotEqual(t, "Ahead", n.Sel.Name, "%s reads the clocks", name)
				}
			case *ast.AssignStmt:
				for _, l := range n.Lhs {
					if s, ok := l.(*ast.SelectorExpr); ok && s.Sel.Name == "phase" {
						writes++
					}
				}
			}
			return true
		})
	}
	assert.Equal(t, 1, writes, "assignments to the phase")
}

func TestMachinesOfEqualHistoriesAreEqual(t *testing.T) {
	for _, p := range everyPhase {
		a, b := newRig(), newRig()
		a.reach(p)
		b.reach(p)
		assert.True(t, a.m == b.m, "%v", p)
	}
}

func TestRequestSaysWhatTheHeadWants(t *testing.T) {
	r := newRig()
	r.at.Seen, r.at.Field = 42, "field"
	r.head = Head[string]{Owner: "o", Waits: true, Barges: true, Holds: 3, Deadline: start.Add(500 * time.Millisecond)}
	r.reach(Begun)
	assert.Equal(t, backend.AcquireRequest{
		Epoch: 1, Owner: "field", Holds: 3, Lease: r.at.Lease, NotAfter: start.Add(500 * time.Millisecond), Queue: true, Barge: true, Tokens: 1,
		Seen: 42, Patience: r.at.Patience, GrantTTL: r.at.GrantTTL,
	}, r.send())

	r = newRig()
	r.head.Cohort, r.head.Holds = true, 3
	r.reach(Begun)
	req := r.send()
	assert.Equal(t, "*", req.Owner)
	assert.Equal(t, 1, req.Holds)
	assert.Equal(t, 3, req.Tokens)

	r = newRig()
	r.head.Fixed = time.Minute
	r.reach(Begun)
	req = r.send()
	assert.True(t, req.Fixed)
	assert.Equal(t, time.Minute, req.Lease)
}

func TestCommandOfATryLeavesAnEighthOfItsTimeAtLeast(t *testing.T) {
	r := newRig()
	r.head.Deadline = start
	r.reach(Begun)
	assert.Equal(t, start.Add(time.Second/8), r.send().NotAfter)
}

func TestHoldThatIsHandedOnKeepsItsLeaseWhileTwoThirdsAreLeft(t *testing.T) {
	for _, c := range []struct {
		name string
		age  time.Duration
		do   func(*rig)
		want bool
	}{
		{"new", 0, nil, true},
		{"at a third", 2908 * time.Millisecond, nil, false},
		{"just before", 2907 * time.Millisecond, nil, true},
		{"for a fixed lease", 0, fixed, false},
		{"that another session may have taken up", 0, func(r *rig) { r.m.hold.portable = true }, false},
		{"of a longer lease", 0, func(r *rig) { r.at.Lease *= 2 }, false},
		{"in a turn that is over", 0, func(r *rig) { r.at.HandoffTime = 0 }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig()
			r.reach(Handed)
			r.wait(c.age)
			r.at.Generation = time.Hour
			if c.do != nil {
				c.do(r)
			}
			r.m.Begin(&r.at, &r.head)
			req := r.send()
			assert.Equal(t, c.want, req.KeepTTL)
			kept := start
			if !c.want {
				kept = r.at.Now
			}
			if r.head.Fixed == 0 {
				r.granted()
				assert.Equal(t, kept, r.m.Hold().Lease.Sent)
			}
		})
	}
}

func TestACopyAfterOneWithoutAReplyAsksForAFullLease(t *testing.T) {
	for _, unknown := range []bool{true, false} {
		r := newRig()
		r.reach(Handed)
		r.m.Begin(&r.at, &r.head)
		require.True(t, r.send().KeepTTL)
		r.wait(r.at.Lease / 3)
		answer(unknown, false)(r)
		r.m.Send(&r.at, 0)
		assert.False(t, r.m.AcquireRequest(&r.at).KeepTTL)
		r.granted()
		assert.Equal(t, r.at.Now, r.m.Hold().Lease.Sent)
	}
}

// handOn hands the hold on, n times.
func handOn(r *rig, n int) (yields bool) {
	for range n {
		r.m.HandOver()
		r.m.Begin(&r.at, &r.head)
		if yields = r.send().Yield; yields {
			return true
		}
		r.granted()
	}
	return false
}

func TestTurnEndsAtItsLimits(t *testing.T) {
	r := newRig()
	r.at.Handoffs = 3
	r.reach(Held)
	assert.False(t, handOn(r, 3))
	assert.True(t, handOn(r, 1), "the fourth")
	r.refuted()
	assert.Zero(t, r.m.turn, "another session has the lock: its grant begins a new turn")

	r = newRig()
	r.reach(Held)
	r.wait(r.at.HandoffTime)
	assert.True(t, handOn(r, 1), "by time")

	r = newRig()
	r.at.Waiters = 2
	r.reach(Held)
	r.wait(r.at.Generation)
	assert.False(t, handOn(r, 2), "each owner that was there has it once")
	assert.True(t, handOn(r, 1))

	r = newRig()
	r.at.HandoffTime = 0
	r.reach(Handed)
	r.head.Waits = false
	r.m.Begin(&r.at, &r.head)
	assert.False(t, r.send().Yield, "a try does not wait")
}

func TestNewTurnBeginsWhenTheLockWasOffered(t *testing.T) {
	r := newRig()
	r.at.HandoffTime = 0
	r.reach(Held)
	r.wait(time.Second)
	assert.True(t, handOn(r, 1))
	r.granted()
	assert.Equal(t, r.at.now(), r.m.turn.began)
}

func TestCohortInheritsUntilItsTokensAreUsed(t *testing.T) {
	r := newRig()
	r.head.Cohort = true
	r.reach(Held)
	for token := backend.Token(8); token <= 9; token++ {
		r.m.HandOver()
		require.Equal(t, Settle, inherit(r).Do)
		assert.Equal(t, token, r.m.Hold().Token)
		assert.Equal(t, token, r.m.ReleaseRequest(&r.at).Used)
	}
	r.m.HandOver()
	assert.Equal(t, Nothing, inherit(r).Do)
	begin(r)
	req := r.send()
	assert.True(t, req.Yield, "its turn is over")
	assert.Zero(t, r.m.ReleaseRequest(&r.at).Used, "the block is used up")
}

func TestCohortDoesNotInherit(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(*rig)
	}{
		{"a lease of which less than a third is left", func(r *rig) { r.wait(5909 * time.Millisecond) }},
		{"in a turn that is over", func(r *rig) { r.at.HandoffTime = 0 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig()
			r.head.Cohort = true
			r.reach(Handed)
			r.at.Generation = time.Hour
			c.do(r)
			assert.Equal(t, Nothing, inherit(r).Do)
		})
	}
}

// accepts reports whether a parked head accepts a grant that was pushed.
func accepts(r *rig, g backend.Grant) bool {
	s := r.m.Pushed(&r.at, &g, false, true)
	return s.Do == Wake && r.m.Woken(&r.at).Do == Settle
}

func TestGrantIsAcceptedOnlyIfItCanBeTrustedForLongEnough(t *testing.T) {
	good := func(r *rig) backend.Grant {
		return backend.Grant{Epoch: r.next, First: 8, Last: 8, TTL: r.at.GrantTTL, NotBefore: r.at.Now}
	}
	for _, c := range []struct {
		name string
		do   func(*rig, *backend.Grant)
		want bool
	}{
		{"one that has just come", func(*rig, *backend.Grant) {}, true},
		{"of which half is left", func(r *rig, g *backend.Grant) { r.wait(1468 * time.Millisecond) }, true},
		{"of which less is left", func(r *rig, g *backend.Grant) { r.wait(1469 * time.Millisecond) }, false},
		{"from an unknown moment", func(r *rig, g *backend.Grant) { g.NotBefore = time.Time{} }, false},
		{"from before a refusal", func(r *rig, g *backend.Grant) { g.NotBefore = start.Add(-1) }, false},
		{"over which the machine slept", func(r *rig, g *backend.Grant) { r.at.Ahead = time.Second }, false},
		{"of a longer lease than was asked for", func(r *rig, g *backend.Grant) { g.TTL += time.Millisecond }, false},
		{"of more tokens than were asked for", func(r *rig, g *backend.Grant) { g.Last++ }, false},
		{"of another epoch", func(r *rig, g *backend.Grant) { g.Epoch++ }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig()
			r.reach(Parked)
			g := good(r)
			c.do(r, &g)
			assert.Equal(t, c.want, accepts(r, g))
		})
	}
	r := newRig()
	r.head.Fixed = time.Second
	r.reach(Parked)
	assert.False(t, accepts(r, good(r)), "a fixed lease starts when it is accepted")
}

func TestGrantThatWasAcceptedIsRememberedAsPushed(t *testing.T) {
	r := newRig()
	r.reach(Parked)
	require.True(t, accepts(r, backend.Grant{Epoch: r.next, First: 8, Last: 8, TTL: r.at.GrantTTL, NotBefore: r.at.Now}))
	assert.Equal(t, backend.Prior{Epoch: r.next, Owner: "o", Token: 8, Pushed: true}, r.m.ReleaseRequest(&r.at).Prior)
	assert.Equal(t, start.Add(r.at.GrantTTL/10), r.m.Hold().Lease.Wake(), "it is renewed soon")
}

func TestGrantThatComesBeforeTheBatonIsThereForItsOwner(t *testing.T) {
	r := newRig()
	g := backend.Grant{Epoch: 5, First: 8, Last: 8, TTL: r.at.GrantTTL, NotBefore: r.at.Now}
	require.Equal(t, Signal, r.m.Pushed(&r.at, &g, true, false).Do)
	r.head.Ticket, r.head.Holds = 5, 2
	s := r.m.Begin(&r.at, &r.head)
	assert.Equal(t, Park, s.Do)
	assert.True(t, s.Woken)
	s = r.m.Woken(&r.at)
	assert.Equal(t, Settle, s.Do)
	assert.Equal(t, 2, s.Holds)
}

func TestPlaceOfASignalIsNotTakenOverByAnOlderAttempt(t *testing.T) {
	r := newRig()
	r.next = 6
	r.reach(Parked)
	r.m.GiveUp()
	r.head.Ticket = 6
	assert.Equal(t, AskAnew, r.m.Begin(&r.at, &r.head).Do)
}

func TestReplyThatCameOverASleepIsNotTrusted(t *testing.T) {
	r := newRig()
	r.reach(Asking)
	r.at.Ahead = time.Second
	assert.Equal(t, Ask, r.granted().Do)
}

func TestHoldThatWasResumedOverASleepIsNotTrusted(t *testing.T) {
	r := newRig()
	r.reach(Resuming)
	r.at.Ahead = time.Second
	assert.Equal(t, Ask, r.resumed(7).Do)
	r.m.SendResume(&r.at, 0)
	assert.Equal(t, Settle, r.resumed(7).Do)
}

func TestPriorIsForTheFirstCopyOnly(t *testing.T) {
	r := newRig()
	r.reach(Handed)
	r.m.Begin(&r.at, &r.head)
	assert.Equal(t, backend.Prior{Epoch: 1, Token: 7}, r.send().Prior)
	answer(false, false)(r)
	r.m.Send(&r.at, 0)
	assert.Zero(t, r.m.AcquireRequest(&r.at).Prior)
}

func TestPriorIsForgottenDuringAnOperationAndThenHasItsNumber(t *testing.T) {
	r := newRig()
	r.reach(Held)
	r.m.Operate()
	assert.Zero(t, r.m.ReleaseRequest(&r.at).Prior)
	r.m.Operated(false, false)
	assert.Zero(t, r.m.prior, "its outcome is not known")

	r = newRig()
	r.reach(Held)
	r.m.Operate()
	r.m.Operated(true, false)
	assert.Equal(t, backend.Prior{Epoch: 1, Token: 7, Op: 1}, r.m.prior)
	assert.EqualValues(t, 1, r.m.hold.op)
}

func TestFreedLockIsRememberedAsFree(t *testing.T) {
	r := newRig()
	r.reach(Freeing)
	r.m.Released(true, true)
	assert.Equal(t, backend.Prior{Epoch: 1, Token: 7, Freed: true}, r.m.prior)
}

func TestReleaseSaysHowLongACopyMayBeUnderWay(t *testing.T) {
	r := newRig()
	r.reach(Asking)
	answer(true, false)(r)
	r.m.GiveUp()
	r.m.Clean()
	assert.Equal(t, start.Add(time.Second), r.m.ReleaseRequest(&r.at).Until)
	assert.Zero(t, r.m.ReleaseRequest(&r.wait(time.Second).at).Until)
}

func TestHoldThatIsWantedDoesNotLinger(t *testing.T) {
	for name, do := range map[string]func(*rig){
		"wanted":  func(r *rig) { r.m.Wanted(r.next) },
		"closing": func(r *rig) { r.closing = true },
		"never":   func(r *rig) { r.at.Linger = 0 },
		"spent":   func(r *rig) { r.m.hold.token = r.m.hold.last },
		"late":    tooLate,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig()
			r.head.Cohort = true
			r.reach(Held)
			do(r)
			assert.Zero(t, linger(r).Wake)
			assert.Equal(t, Held, r.m.Phase())
		})
	}
}

func TestIdleHoldIsDismissedOnce(t *testing.T) {
	r := newRig()
	r.reach(Idle)
	assert.Equal(t, Dismiss, r.m.Dismiss().Do)
	assert.Equal(t, Nothing, r.m.Wanted(r.next).Do)
	assert.True(t, r.m.Arrive())
	assert.Equal(t, Dismiss, r.m.Dismiss().Do, "again, if that found no baton")
	s := begin(r)
	assert.True(t, s.Dropped)
	assert.False(t, r.m.Arrive(), "an owner has inherited it")
}

func TestHoldThatMayHaveMovedIsChecked(t *testing.T) {
	portable := func(r *rig) { r.head.Portable = true }
	for _, c := range []struct {
		name  string
		head  func(*rig)
		event func(*rig) Step
		want  bool
	}{
		{"taken", portable, func(r *rig) Step { return r.m.Taken(r.next) }, true},
		{"another was taken", portable, func(r *rig) Step { return r.m.Taken(r.next - 1) }, false},
		{"taken, and it cannot be", func(*rig) {}, func(r *rig) Step { return r.m.Taken(r.next) }, false},
		{"reconnected", portable, func(r *rig) Step { return r.m.Reconnected() }, false},
		{"reconnected, with a fixed lease", fixed, func(r *rig) Step { return r.m.Reconnected() }, true},
		{"the machine slept", portable, func(r *rig) Step {
			r.at.Ahead = 20 * time.Second
			return tick(r)
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig()
			c.head(r)
			r.reach(Held)
			assert.Equal(t, c.want, c.event(r).Check)
			if c.want {
				assert.False(t, c.event(r).Check, "one check is enough")
				assert.True(t, r.m.Checking(r.next))
			}
		})
	}
	r := newRig()
	r.head.Portable = true
	r.reach(Asking)
	r.m.Taken(r.next)
	assert.True(t, r.granted().Check, "the message came before the reply")
}

func TestRenewalsAreDue(t *testing.T) {
	r := newRig()
	r.reach(Held)
	assert.Equal(t, Nothing, tick(r.wait(2*time.Second)).Do)
	assert.Equal(t, Renew, r.m.Tick(&r.at, Survey{Refreshed: r.at.Now}).Do, "there may be another server")
	assert.Equal(t, Nothing, r.m.Tick(&r.wait(time.Second).at, Survey{Renewing: true}).Do, "a batch is under way")
	renewed(false, true)(r)
	assert.Equal(t, Nothing, tick(r).Do, "it keeps its pause")
}

func TestTransitionsDoNotAllocate(t *testing.T) {
	r := newRig()
	var m Machine[string]
	reply := backend.AcquireReply{Status: backend.Granted, First: 7, Last: 7}
	r.next = 1
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		r.next++
		m.Begin(&r.at, &r.head)
		m.Send(&r.at, r.next)
		m.AcquireRequest(&r.at)
		m.Replied(&r.at, &reply)
		m.Exit(&r.at)
		m.ReleaseRequest(&r.at)
		m.Released(true, true)
	}))
}

func BenchmarkHandOver(b *testing.B) {
	r := newRig()
	r.head.Cohort, r.at.Handoffs = true, 1<<30
	r.reach(Held)
	r.m.hold.last = 1 << 60
	for b.Loop() {
		r.m.HandOver()
		r.m.Inherit(r.at.Options, time.Hour, 0, &r.head.Owner)
	}
}

func BenchmarkUncontended(b *testing.B) {
	r := newRig()
	var m Machine[string]
	reply := backend.AcquireReply{Status: backend.Granted, First: 7, Last: 7}
	for b.Loop() {
		r.next++
		m.Begin(&r.at, &r.head)
		m.Send(&r.at, r.next)
		m.AcquireRequest(&r.at)
		m.Replied(&r.at, &reply)
		m.Exit(&r.at)
		m.ReleaseRequest(&r.at)
		m.Released(true, true)
	}
}
