package machine

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/lease"
)

const (
	same    = phases      // the phase stays
	request = actions     // the method returns a request instead of a step
	none    = actions + 1 // the method returns nothing
)

// everyPhase is every phase.
var everyPhase = []Phase{Vacant, Begun, Asking, Parked, Resuming, Held, Leaving, Lost, Handed, Idle, Lapsed, Freeing}

// A row is a row of the table in the doc comment of Machine, with the functions that make it happen.
type row struct {
	event string
	from  []Phase
	when  string
	to    Phase
	do    Action
	begin func(*rig)      // before the phase is reached
	act   func(*rig) Step // in the phase
	then  func(*testing.T, *rig, Step)
}

// A rig is a machine with the arguments that its methods take.
type rig struct {
	m    Machine[string]
	at   Moment
	head Head[string]
	next uint64 // epoch

	closing bool // the session is being closed
}

var start = time.Unix(1_700_000_000, 0)

func newRig() *rig {
	return &rig{at: Moment{Now: start, Field: "o", Options: &Options{
		Opened: start.Add(-time.Hour),
		Lease:  9 * time.Second, Heartbeat: 3 * time.Second, CommandTimeout: time.Second, Patience: 5 * time.Second, GrantTTL: 3 * time.Second,
		Handoffs: 64, HandoffTime: 10 * time.Second, Generation: 5 * time.Millisecond, Linger: time.Second, Block: 3, CohortOwner: "*",
	}}, head: Head[string]{Owner: "o", Waits: true}}
}

func (r *rig) wait(d time.Duration) *rig {
	r.at.Now = r.at.Now.Add(d)
	return r
}

func (r *rig) send() backend.AcquireRequest {
	r.next++
	r.m.Send(&r.at, r.next)
	return r.m.AcquireRequest(&r.at)
}

func (r *rig) sendResume() backend.ResumeRequest {
	r.next++
	r.m.SendResume(&r.at, r.next)
	return r.m.ResumeRequest(&r.at, r.at.Now.Add(time.Second))
}

// replied lets a copy be replied to.
func (r *rig) replied(reply backend.AcquireReply) Step {
	if reply.Status == backend.Granted && reply.First == 0 {
		reply.First, reply.Last = 7, 7
	}
	return r.m.Replied(&r.at, &reply)
}

func (r *rig) granted() Step {
	reply := backend.AcquireReply{Status: backend.Granted, First: 7, Last: 7, TTL: r.at.Lease}
	if r.m.hold.cohort {
		reply.Last = 9
	} else {
		reply.Prior = backend.Prior{Epoch: r.m.epoch, Token: 7}
	}
	return r.m.Replied(&r.at, &reply)
}

func (r *rig) refuted() Step {
	return r.replied(backend.AcquireReply{Status: backend.Waiting, TTL: -1})
}

func (r *rig) resumed(token backend.Token) Step {
	return r.m.Resumed(&r.at, &backend.ResumeReply{Status: backend.Resumed, Holds: 2, Token: token, TTL: r.at.Lease})
}

func (r *rig) push(epoch uint64) Step {
	return r.m.Pushed(&r.at, &backend.Grant{Epoch: epoch, First: 8, Last: 8, TTL: r.at.GrantTTL, NotBefore: r.at.Now}, false, false)
}

// reach brings the machine to a phase.
func (r *rig) reach(p Phase) {
	switch p {
	case Vacant:
	case Begun:
		r.m.Begin(&r.at, &r.head)
	case Asking:
		r.reach(Begun)
		r.send()
	case Parked:
		r.reach(Asking)
		r.refuted()
	case Resuming:
		r.m.Resume(&r.at, &r.head)
		r.sendResume()
	case Held:
		r.reach(Asking)
		r.granted()
	case Leaving:
		r.reach(Held)
		r.m.StartLeaving()
	case Lost:
		r.reach(Held)
		r.m.Lose(r.m.Epoch(), "a test")
	case Handed:
		r.reach(Held)
		r.m.HandOver()
	case Idle:
		r.head.Cohort = !r.head.Alone
		r.reach(Held)
		linger(r)
	case Lapsed:
		r.reach(Idle)
		r.m.Lose(r.m.Epoch(), "a test")
	case Freeing:
		r.reach(Held)
		r.m.Exit(&r.at)
	}
}

func cohort(r *rig) { r.head.Cohort = true }
func alone(r *rig)  { r.head.Alone, r.m.run = true, r.m.needs() }
func try(r *rig)    { r.head.Waits = false }
func fixed(r *rig)  { r.head.Fixed = r.at.Lease }

// silent turns a method that returns no step into one that returns a step without an action.
func silent(f func(*rig)) func(*rig) Step {
	return func(r *rig) Step {
		f(r)
		return Step{Do: none}
	}
}

// of returns an act for a row, which calls the function before, and then returns the step of the function event.
func of(before func(*rig), event func(*rig) Step) func(*rig) Step {
	return func(r *rig) Step {
		before(r)
		return event(r)
	}
}

// inherit does what a head in cohort mode tries before Begin.
func inherit(r *rig) Step {
	do, dropped := r.m.Inherit(r.at.Options, r.at.Now.Sub(r.at.Opened), r.at.Waiters, &r.head.Owner)
	return Step{Do: do, Dropped: dropped}
}

// linger does what an owner's last unlock tries before Exit.
func linger(r *rig) Step {
	if until, ok := r.m.Linger(r.at.Options, r.at.Now.Sub(r.at.Opened), r.closing); ok {
		return Step{Do: none, Wake: r.at.Opened.Add(until)}
	}
	return Step{Do: none}
}

// pushWhileBusy pushes the second copy of a grant for the latest attempt, while a goroutine has the baton.
func pushWhileBusy(r *rig) Step {
	return r.m.Pushed(&r.at, &backend.Grant{Epoch: r.next}, false, true)
}

func begin(r *rig) Step     { return r.m.Begin(&r.at, &r.head) }
func woken(r *rig) Step     { return r.m.Woken(&r.at) }
func giveUp(r *rig) Step    { return r.m.GiveUp() }
func exit(r *rig) Step      { return r.m.Exit(&r.at) }
func clean(r *rig) Step     { return r.m.Clean() }
func resume(r *rig) Step    { return r.m.Resume(&r.at, &r.head) }
func tick(r *rig) Step      { return r.m.Tick(&r.at, Survey{}) }
func overtaken(r *rig) Step { return r.m.Overtaken(&r.at, &r.head) }
func abandoned(r *rig)      { r.at.Abandoned = true }
func tooLate(r *rig)        { r.wait(r.at.Lease) }
func trust(r *rig) Step     { return r.m.Trust(&r.at, "a test") }

func answer(unknown, refused bool) func(*rig) Step {
	return func(r *rig) Step { return r.m.Unanswered(&r.at, Failure{Unknown: unknown, Refused: refused}) }
}

func resumeAnswer(unknown, refused bool) func(*rig) Step {
	return func(r *rig) Step {
		return r.m.ResumeUnanswered(&r.at, Failure{Unknown: unknown, Refused: refused}, r.at.Now.Add(time.Second))
	}
}

func renewed(gone, failed bool) func(*rig) Step {
	return func(r *rig) Step {
		return r.m.Renewed(&r.at, Renewed{Epoch: r.m.Epoch(), First: r.m.Hold().First, Gone: gone, Failed: failed, Sent: r.at.Now})
	}
}

func renewedAgain(r *rig) Step {
	return r.m.Renewed(&r.at, Renewed{Epoch: r.m.Epoch(), First: r.m.Hold().First + 1, Sent: r.at.Now})
}

func checked(ours, failed bool) func(*rig) Step {
	return func(r *rig) Step {
		return r.m.Checked(&r.at, Checked{Epoch: r.m.Epoch(), Ours: ours, Failed: failed, Sent: r.at.Now, TTL: time.Second})
	}
}

func lose(r *rig) Step { return r.m.Lose(r.m.Epoch(), "a test") }

func resumedAs(status backend.ResumeStatus) func(*rig) Step {
	return func(r *rig) Step { return r.m.Resumed(&r.at, &backend.ResumeReply{Status: status}) }
}

func own(r *rig) {
	r.m.ResumeOwn(&r.at, &r.head)
	r.sendResume()
}

var table = []row{
	{event: "Inherit", from: []Phase{Handed, Idle}, when: "in cohort mode, with tokens, lease and turn left", to: Held, do: Settle, begin: cohort, act: inherit,
		then: func(t *testing.T, r *rig, s Step) { assert.EqualValues(t, 8, r.m.Hold().Token) }},
	{event: "Inherit", from: []Phase{Handed, Idle}, when: "kept alone, with tokens, lease and turn left", to: Held, do: Settle, begin: alone, act: inherit,
		then: func(t *testing.T, r *rig, s Step) { assert.EqualValues(t, 8, r.m.Hold().Token) }},
	{event: "Inherit", from: []Phase{Idle}, when: "otherwise", to: Handed, do: Nothing, begin: cohort, act: of(tooLate, inherit),
		then: func(t *testing.T, _ *rig, s Step) { assert.True(t, s.Dropped) }},
	{event: "Inherit", from: []Phase{Vacant, Handed, Lapsed}, when: "otherwise", to: same, do: Nothing, act: inherit},
	{event: "Begin", from: []Phase{Vacant, Lapsed}, when: "its place in Redis came with a signal", to: Parked, do: Park, act: of(func(r *rig) { r.head.Ticket = 5 }, begin),
		then: func(t *testing.T, r *rig, s Step) {
			assert.EqualValues(t, 5, r.m.Sent())
			assert.EqualValues(t, -1, s.TTL)
		}},
	{event: "Begin", from: []Phase{Vacant, Handed, Idle}, when: "the session is alone with the lock", to: Begun, do: AskAnew, begin: alone, act: begin,
		then: func(t *testing.T, r *rig, _ Step) {
			req := r.send()
			assert.Equal(t, "*", req.Owner)
			assert.Equal(t, 3, req.Tokens)
			assert.Equal(t, r.at.GrantTTL, req.Lease)
			assert.Equal(t, r.at.Now.Add(r.at.GrantTTL/3), req.NotAfter)
			assert.Equal(t, r.at.Lease, req.GrantTTL)
			assert.False(t, req.KeepTTL)
		}},
	{event: "Begin", from: []Phase{Vacant, Handed, Idle, Lapsed}, when: "otherwise", to: Begun, do: AskAnew, act: of(func(r *rig) { r.head.Cohort = false }, begin)},
	{event: "Send", from: []Phase{Begun}, when: "under a new epoch", to: Asking, do: request, act: func(r *rig) Step {
		r.send()
		return Step{Do: request}
	}},
	{event: "Send", from: []Phase{Parked}, when: "under the same epoch", to: Asking, do: request, act: func(r *rig) Step {
		r.m.Send(&r.at, 0)
		return Step{Do: request}
	}, then: func(t *testing.T, r *rig, _ Step) { assert.EqualValues(t, r.next, r.m.Sent()) }},
	{event: "Replied", from: []Phase{Asking}, when: "granted, and the session has given up its holds", to: Vacant, do: PassOn, act: of(abandoned, (*rig).granted)},
	{event: "Replied", from: []Phase{Asking}, when: "granted in time", to: Held, do: Settle, act: (*rig).granted},
	{event: "Replied", from: []Phase{Asking}, when: "granted too late to be trusted; a fixed lease", to: Begun, do: AskAnew, begin: fixed, act: of(tooLate, (*rig).granted)},
	{event: "Replied", from: []Phase{Asking}, when: "granted too late to be trusted; to be kept alone", to: Begun, do: AskAnew, begin: alone, act: of(tooLate, (*rig).granted), then: isUsual},
	{event: "Replied", from: []Phase{Asking}, when: "granted too late to be trusted", to: Parked, do: Ask, act: of(tooLate, (*rig).granted)},
	{event: "Replied", from: []Phase{Asking}, when: "stale", to: Begun, do: AskAnew, act: func(r *rig) Step { return r.replied(backend.AcquireReply{Status: backend.Stale}) }},
	{event: "Replied", from: []Phase{Asking}, when: "another session has it, which was to be kept alone", to: Begun, do: AskAnew, begin: alone, act: (*rig).refuted, then: isUsual},
	{event: "Replied", from: []Phase{Asking}, when: "another session has it, and the head spins", to: Parked, do: Ask, begin: func(r *rig) { r.at.Spin = 1 }, act: (*rig).refuted},
	{event: "Replied", from: []Phase{Asking}, when: "another may keep it idle; the first time, for a try", to: Parked, do: Pause, begin: try, act: func(r *rig) Step {
		return r.replied(backend.AcquireReply{Status: backend.Waiting, Lingers: true})
	}, then: func(t *testing.T, r *rig, s Step) { assert.Equal(t, minHandOver, s.Wait) }},
	{event: "Replied", from: []Phase{Asking}, when: "the same, for a try that was to keep it alone", to: Begun, do: Pause, begin: func(r *rig) {
		alone(r)
		try(r)
	}, act: func(r *rig) Step {
		return r.replied(backend.AcquireReply{Status: backend.Waiting, Lingers: true})
	}, then: isUsual},
	{event: "Replied", from: []Phase{Asking}, when: "another session has it, for a try", to: Vacant, do: Leave, begin: try, act: (*rig).refuted},
	{event: "Replied", from: []Phase{Asking}, when: "another session has it", to: Parked, do: Park, act: (*rig).refuted},
	{event: "Unanswered", from: []Phase{Asking}, when: "refused, or for a try; it may have been carried out", to: Vacant, do: PassOn, act: answer(true, true),
		then: func(t *testing.T, r *rig, _ Step) {
			assert.Equal(t, r.at.Now.Add(time.Second), r.m.PendingUntil(&r.at))
		}},
	{event: "Unanswered", from: []Phase{Asking}, when: "refused, or for a try", to: Vacant, do: Leave, act: answer(false, true)},
	{event: "Unanswered", from: []Phase{Asking}, when: "the lock was to be kept alone", to: Begun, do: Pause, begin: alone, act: answer(true, false),
		then: func(t *testing.T, r *rig, s Step) {
			assert.Equal(t, r.at.Now.Add(r.at.GrantTTL/3), r.m.PendingUntil(&r.at))
			isUsual(t, r, s)
		}},
	{event: "Unanswered", from: []Phase{Asking}, when: "it may have been carried out", to: Parked, do: Pause, act: answer(true, false),
		then: func(t *testing.T, r *rig, _ Step) { assert.True(t, r.m.Unreleased()) }},
	{event: "Unanswered", from: []Phase{Asking}, when: "otherwise", to: Parked, do: Pause, act: answer(false, false),
		then: func(t *testing.T, r *rig, _ Step) {
			assert.False(t, r.m.Unreleased())
			assert.Zero(t, r.m.PendingUntil(&r.at))
		}},
	{event: "Pushed", from: everyPhase, when: "for the ticket of an owner that is not the head yet", to: same, do: Signal, act: func(r *rig) Step {
		return r.m.Pushed(&r.at, &backend.Grant{Epoch: r.next + 1}, true, true)
	}},
	{event: "Pushed", from: []Phase{Asking, Parked}, when: "for the attempt, which waits", to: same, do: Wake, act: func(r *rig) Step { return r.push(r.next) }},
	{event: "Pushed", from: everyPhase, when: "for an earlier epoch", to: same, do: Nothing, act: func(r *rig) Step {
		r.m.epoch++
		return r.push(r.next)
	}},
	{event: "Pushed", from: []Phase{Handed, Idle}, when: "for this hold", to: same, do: Nothing, act: func(r *rig) Step { return r.push(r.next) }},
	{event: "Pushed", from: []Phase{Vacant, Begun, Held, Leaving}, when: "for an attempt that is over, and the baton is in use", to: same, do: Nothing, act: pushWhileBusy},
	{event: "Pushed", from: []Phase{Lost, Freeing}, when: "for an attempt that is over, and the baton is in use", to: same, do: Nothing, act: pushWhileBusy},
	{event: "Pushed", from: []Phase{Vacant, Lapsed}, when: "for an attempt that is over, and the baton is free", to: same, do: Orphan, act: func(r *rig) Step { return r.push(r.next) }},
	{event: "Woken", from: []Phase{Parked}, when: "a grant to trust; the session has given up its holds", to: Vacant, do: PassOn, act: func(r *rig) Step {
		r.push(r.next)
		return of(abandoned, woken)(r)
	}},
	{event: "Woken", from: []Phase{Parked}, when: "a grant to trust", to: Held, do: Settle, act: func(r *rig) Step {
		r.push(r.next)
		return woken(r)
	}, then: func(t *testing.T, r *rig, _ Step) { assert.EqualValues(t, 8, r.m.Hold().Token) }},
	{event: "Woken", from: []Phase{Parked}, when: "otherwise", to: same, do: Ask, act: woken},
	{event: "Woken", from: []Phase{Begun}, when: "", to: same, do: AskAnew, act: woken},
	{event: "Overtaken", from: []Phase{Vacant, Handed, Idle, Lapsed}, when: "", to: Begun, do: AskAnew, act: overtaken},
	{event: "GiveUp", from: []Phase{Begun, Parked}, when: "Redis may have something of the session", to: Vacant, do: PassOn, act: of(func(r *rig) { r.m.unreleased = true }, giveUp)},
	{event: "GiveUp", from: []Phase{Begun, Parked}, when: "otherwise", to: Vacant, do: Leave, act: of(func(r *rig) { r.m.unreleased = false }, giveUp)},
	{event: "HandOver", from: []Phase{Held}, when: "the next owner in line has the baton", to: Handed, do: none, act: silent(func(r *rig) { r.m.HandOver() })},
	{event: "Linger", from: []Phase{Held}, when: "in cohort mode, trusted, not wanted, with tokens left", to: Idle, do: none, begin: cohort, act: linger,
		then: func(t *testing.T, r *rig, s Step) { assert.Equal(t, r.at.Now.Add(time.Second), s.Wake) }},
	{event: "Linger", from: []Phase{Held}, when: "kept alone, the same, and not renewed", to: Idle, do: none, begin: alone, act: linger,
		then: func(t *testing.T, r *rig, s Step) { assert.Equal(t, r.at.Now.Add(time.Second), s.Wake) }},
	{event: "Linger", from: []Phase{Held, Lost}, when: "otherwise", to: same, do: none, act: linger},
	{event: "Exit", from: []Phase{Lost}, when: "", to: Vacant, do: PassOn, act: exit,
		then: func(t *testing.T, _ *rig, s Step) {
			assert.True(t, s.Lost)
			assert.Empty(t, s.Why, "the loss is reported already")
		}},
	{event: "Exit", from: []Phase{Held}, when: "the lease is over", to: Vacant, do: PassOn, act: of(tooLate, exit),
		then: func(t *testing.T, _ *rig, s Step) {
			assert.True(t, s.Lost)
			assert.NotEmpty(t, s.Why)
		}},
	{event: "Exit", from: []Phase{Held}, when: "it must last longer, and stays taken", to: Freeing, do: Release,
		begin: func(r *rig) { r.head.AtLeast = time.Hour }, act: exit,
		then: func(t *testing.T, r *rig, _ Step) {
			assert.Equal(t, r.at.Now.Add(time.Hour), r.m.ReleaseRequest(&r.at).StaysUntil)
			r.m.Released(true, false)
			assert.Zero(t, r.m.ReleaseRequest(&r.at).StaysUntil, "of a later release")
		}},
	{event: "Exit", from: []Phase{Held}, when: "otherwise", to: Freeing, do: Release,
		begin: func(r *rig) { r.head.AtLeast = time.Nanosecond }, act: of(func(r *rig) { r.wait(time.Second) }, exit),
		then: func(t *testing.T, r *rig, _ Step) { assert.Zero(t, r.m.ReleaseRequest(&r.at).StaysUntil) }},
	{event: "Clean", from: []Phase{Vacant, Handed, Idle, Lapsed}, when: "", to: Freeing, do: Release, act: clean},
	{event: "Released", from: []Phase{Freeing}, when: "Redis has nothing of the session any more", to: Vacant, do: none, act: silent(func(r *rig) { r.m.Released(true, false) }),
		then: func(t *testing.T, r *rig, _ Step) { assert.False(t, r.m.Unreleased()) }},
	{event: "Released", from: []Phase{Freeing}, when: "otherwise", to: Vacant, do: none, act: silent(func(r *rig) { r.m.Released(false, false) }),
		then: func(t *testing.T, r *rig, _ Step) { assert.True(t, r.m.Unreleased()) }},
	{event: "Trust", from: []Phase{Held, Leaving}, when: "the lease can be trusted", to: same, do: Ask, act: trust},
	{event: "Trust", from: []Phase{Held, Leaving}, when: "otherwise", to: Lost, do: Lose, act: of(tooLate, trust)},
	{event: "Trust", from: []Phase{Lost}, when: "", to: same, do: Nothing, act: trust, then: func(t *testing.T, _ *rig, s Step) { assert.True(t, s.Lost) }},
	{event: "Operated", from: []Phase{Held, Leaving}, when: "Redis no longer has the hold", to: Lost, do: Lose, act: func(r *rig) Step {
		r.m.Operate()
		return r.m.Operated(true, true)
	}},
	{event: "Operated", from: []Phase{Held, Leaving, Lost}, when: "otherwise", to: same, do: Nothing, act: func(r *rig) Step {
		r.m.Operate()
		return r.m.Operated(true, false)
	}},
	{event: "Finish", from: []Phase{Held}, when: "", to: same, do: Settle, act: func(r *rig) Step { return r.m.Finish() }},
	{event: "Finish", from: []Phase{Lost}, when: "", to: Vacant, do: PassOn, act: func(r *rig) Step { return r.m.Finish() },
		then: func(t *testing.T, _ *rig, s Step) { assert.True(t, s.Lost) }},
	{event: "StartLeaving", from: []Phase{Held}, when: "", to: Leaving, do: none, act: silent(func(r *rig) { r.m.StartLeaving() })},
	{event: "StartLeaving", from: []Phase{Lost}, when: "", to: same, do: none, act: silent(func(r *rig) { r.m.StartLeaving() })},
	{event: "Stay", from: []Phase{Leaving}, when: "", to: Held, do: none, act: silent(func(r *rig) { r.m.Stay() })},
	{event: "Stay", from: []Phase{Lost}, when: "", to: same, do: none, act: silent(func(r *rig) { r.m.Stay() })},
	{event: "Left", from: []Phase{Leaving}, when: "", to: Vacant, do: Leave, act: func(r *rig) Step { return r.m.Left() }},
	{event: "Left", from: []Phase{Lost}, when: "", to: same, do: Nothing, act: func(r *rig) Step {
		r.m.prior = backend.Prior{Epoch: r.m.Epoch()}
		return r.m.Left()
	}, then: func(t *testing.T, r *rig, s Step) {
		assert.True(t, s.Lost)
		assert.Zero(t, r.m.prior, "Redis has a ticket instead")
	}},
	{event: "Resume", from: []Phase{Vacant, Lapsed}, when: "", to: Resuming, do: AskAnew, act: resume},
	{event: "Resume", from: []Phase{Begun, Parked}, when: "the head lets it go first", to: Resuming, do: AskAnew, act: resume},
	{event: "Resume", from: []Phase{Handed, Idle}, when: "", to: Handed, do: PassOn, act: resume},
	{event: "ResumeOwn", from: []Phase{Held}, when: "", to: Leaving, do: AskAnew, act: func(r *rig) Step { return r.m.ResumeOwn(&r.at, &r.head) }},
	{event: "ResumeOwn", from: []Phase{Lost}, when: "", to: same, do: AskAnew, act: func(r *rig) Step { return r.m.ResumeOwn(&r.at, &r.head) }},
	{event: "Resumed", from: []Phase{Resuming, Leaving, Lost}, when: "too late to be trusted", to: same, do: Ask, act: func(r *rig) Step {
		own2(r)
		return of(tooLate, func(r *rig) Step { return r.resumed(7) })(r)
	}},
	{event: "Resumed", from: []Phase{Resuming, Leaving, Lost}, when: "overtaken", to: same, do: AskAnew, act: of(own2, resumedAs(backend.Overtaken))},
	{event: "Resumed", from: []Phase{Resuming}, when: "taken up, and the session has given up its holds", to: Vacant, do: PassOn, act: of(abandoned, func(r *rig) Step { return r.resumed(7) })},
	{event: "Resumed", from: []Phase{Resuming}, when: "taken up", to: Held, do: Settle, act: func(r *rig) Step { return r.resumed(7) },
		then: func(t *testing.T, r *rig, s Step) { assert.Equal(t, 2, s.Holds) }},
	{event: "Resumed", from: []Phase{Leaving, Lost}, when: "the same hold", to: Held, do: Replace, act: of(own, func(r *rig) Step { return r.resumed(7) }),
		then: func(t *testing.T, r *rig, s Step) {
			assert.Zero(t, s.Holds)
			assert.Equal(t, r.next, r.m.Epoch())
		}},
	{event: "Resumed", from: []Phase{Leaving, Lost}, when: "another hold of the owner", to: Held, do: Replace, act: of(own, func(r *rig) Step { return r.resumed(8) }),
		then: func(t *testing.T, _ *rig, s Step) { assert.Equal(t, 2, s.Holds) }},
	{event: "Resumed", from: []Phase{Leaving}, when: "the same, and the session has given up its holds", to: Held, do: Replace, act: func(r *rig) Step {
		own(r)
		return of(abandoned, func(r *rig) Step { return r.resumed(7) })(r)
	}, then: func(t *testing.T, r *rig, _ Step) {
		assert.Equal(t, r.next-1, r.m.Epoch(), "the hold that is to be given up")
	}},
	{event: "Resumed", from: []Phase{Resuming}, when: "not there; Redis may have something of the session", to: Vacant, do: PassOn,
		act: of(func(r *rig) { r.m.unreleased = true }, resumedAs(backend.NotThere))},
	{event: "Resumed", from: []Phase{Resuming}, when: "not there", to: Vacant, do: Leave, act: resumedAs(backend.NotThere)},
	{event: "Resumed", from: []Phase{Leaving}, when: "not there", to: Lost, do: Lose, act: of(own, resumedAs(backend.NotThere))},
	{event: "ResumeUnanswered", from: []Phase{Resuming}, when: "refused", to: Vacant, do: Leave, act: resumeAnswer(false, true)},
	{event: "ResumeUnanswered", from: []Phase{Leaving}, when: "refused; it may have been carried out", to: Lost, do: Lose, act: of(own, resumeAnswer(true, true))},
	{event: "ResumeUnanswered", from: []Phase{Leaving}, when: "refused", to: Held, do: Nothing, act: of(own, resumeAnswer(false, true))},
	{event: "ResumeUnanswered", from: []Phase{Resuming, Leaving, Lost}, when: "it may have been carried out", to: same, do: AskAnew, act: of(own2, resumeAnswer(true, false)),
		then: func(t *testing.T, r *rig, _ Step) { assert.NotZero(t, r.m.PendingUntil(&r.at)) }},
	{event: "ResumeUnanswered", from: []Phase{Resuming, Leaving, Lost}, when: "otherwise", to: same, do: Ask, act: of(own2, resumeAnswer(false, false))},
	{event: "NotResumed", from: []Phase{Resuming}, when: "the caller gives up", to: Vacant, do: Leave, act: func(r *rig) Step { return r.m.NotResumed(Failure{}, false) }},
	{event: "NotResumed", from: []Phase{Leaving}, when: "a copy may have been carried out", to: Lost, do: Lose, act: of(own, func(r *rig) Step { return r.m.NotResumed(Failure{Unknown: true}, false) })},
	{event: "NotResumed", from: []Phase{Leaving}, when: "otherwise", to: Held, do: Nothing, act: of(own, func(r *rig) Step { return r.m.NotResumed(Failure{}, false) })},
	{event: "Tick", from: []Phase{Lost}, when: "Redis may still have the lease", to: same, do: Nothing, act: tick, then: func(t *testing.T, r *rig, s Step) { assert.Equal(t, start.Add(r.at.Lease), s.Wake) }},
	{event: "Tick", from: []Phase{Lost}, when: "the lease is over in Redis too", to: same, do: Evict, act: of(tooLate, tick)},
	{event: "Tick", from: []Phase{Held, Leaving}, when: "the lease is over", to: Lost, do: Lose, act: of(tooLate, tick)},
	{event: "Tick", from: []Phase{Idle}, when: "idle for long enough, and not dismissed yet", to: same, do: Dismiss, act: func(r *rig) Step { return tick(r.wait(r.at.Linger)) }},
	{event: "Tick", from: []Phase{Idle}, when: "kept alone, and there may be another server", to: same, do: Dismiss, begin: alone,
		act: func(r *rig) Step { return r.m.Tick(&r.at, Survey{Refreshed: r.wait(1).at.Now}) }},
	{event: "Tick", from: []Phase{Lapsed}, when: "not dismissed yet", to: same, do: Dismiss, act: tick},
	{event: "Tick", from: []Phase{Held, Leaving}, when: "its renewal is due", to: same, do: Renew, act: func(r *rig) Step { return tick(r.wait(3 * time.Second)) },
		then: func(t *testing.T, r *rig, s Step) { assert.Equal(t, r.m.Hold().Lease.Until(), s.Wake) }},
	{event: "Tick", from: []Phase{Handed, Idle}, when: "in cohort mode, its renewal is due", to: same, do: Renew, begin: func(r *rig) { r.head.Cohort, r.at.Linger = true, time.Minute },
		act: func(r *rig) Step { return tick(r.wait(3 * time.Second)) }},
	{event: "Tick", from: []Phase{Vacant, Asking, Held, Idle}, when: "otherwise", to: same, do: Nothing, act: tick},
	{event: "Renewed", from: []Phase{Leaving}, when: "Redis no longer has it", to: same, do: Nothing, act: renewed(true, false)},
	{event: "Renewed", from: []Phase{Held}, when: "Redis no longer has it", to: Lost, do: Lose, act: renewed(true, false)},
	{event: "Renewed", from: []Phase{Handed}, when: "Redis no longer has it", to: Vacant, do: Nothing, act: renewed(true, false)},
	{event: "Renewed", from: []Phase{Idle}, when: "Redis no longer has it", to: Lapsed, do: Nothing, act: renewed(true, false)},
	{event: "Renewed", from: []Phase{Leaving}, when: "Redis granted it again", to: same, do: Nothing, act: renewedAgain},
	{event: "Renewed", from: []Phase{Held}, when: "Redis granted it again", to: Lost, do: Lose, act: renewedAgain},
	{event: "Renewed", from: []Phase{Handed}, when: "Redis granted it again", to: Vacant, do: Nothing, act: renewedAgain},
	{event: "Renewed", from: []Phase{Idle}, when: "Redis granted it again", to: Lapsed, do: Nothing, act: renewedAgain},
	{event: "Renewed", from: []Phase{Held, Leaving, Handed, Idle}, when: "it failed", to: same, do: Extended, act: renewed(false, true),
		then: func(t *testing.T, r *rig, s Step) {
			assert.Equal(t, lease.Failing, s.Change)
			assert.Equal(t, start.Add(time.Second), r.m.Hold().Lease.Wake())
		}},
	{event: "Renewed", from: []Phase{Held, Leaving, Handed, Idle}, when: "otherwise", to: same, do: Extended, act: func(r *rig) Step { return renewed(false, false)(r.wait(time.Second)) },
		then: func(t *testing.T, r *rig, _ Step) { assert.Equal(t, r.at.Now, r.m.Hold().Lease.Sent) }},
	{event: "Renewed", from: []Phase{Held, Leaving, Handed, Idle}, when: "the lease is over, and no Tick has seen that yet", to: same, do: Extended, act: func(r *rig) Step {
		r.wait(r.at.Lease)
		return r.m.Renewed(&r.at, Renewed{Epoch: r.m.Epoch(), First: r.m.Hold().First, Sent: r.at.Now.Add(-time.Second)})
	}, then: func(t *testing.T, r *rig, _ Step) {
		assert.True(t, r.m.Hold().Lease.Trusted(r.at.Now), "Redis had it all the time")
	}},
	{event: "Renewed", from: []Phase{Lost}, when: "the loss was reported, whatever Redis replies", to: same, do: Nothing, act: renewed(false, false),
		then: func(t *testing.T, r *rig, _ Step) {
			assert.Equal(t, Nothing, renewed(true, false)(r).Do)
			assert.Equal(t, Nothing, renewed(false, true)(r).Do)
			assert.Equal(t, Lost, r.m.Phase())
		}},
	{event: "Renewed", from: []Phase{Vacant, Asking, Held, Lost}, when: "of a hold that has ended", to: same, do: Nothing, act: func(r *rig) Step {
		return r.m.Renewed(&r.at, Renewed{Epoch: 99, Sent: r.at.Now})
	}},
	{event: "Retaken", from: []Phase{Handed}, when: "", to: same, do: none, act: silent(func(r *rig) { r.m.Retaken() }),
		then: func(t *testing.T, r *rig, _ Step) { assert.EqualValues(t, 1, r.m.run) }},
	{event: "Lose", from: []Phase{Held, Leaving}, when: "", to: Lost, do: Lose, act: lose},
	{event: "Lose", from: []Phase{Handed}, when: "", to: Vacant, do: Nothing, act: lose},
	{event: "Lose", from: []Phase{Idle}, when: "", to: Lapsed, do: Nothing, act: lose},
	{event: "Lose", from: []Phase{Lost}, when: "", to: same, do: Nothing, act: lose},
	{event: "Evicted", from: []Phase{Lost}, when: "", to: Vacant, do: none, act: silent(func(r *rig) { r.m.Evicted() })},
	{event: "Taken", from: everyPhase, when: "", to: same, do: Nothing, act: func(r *rig) Step { return r.m.Taken(r.next) }},
	{event: "Reconnected", from: everyPhase, when: "", to: same, do: Nothing, act: func(r *rig) Step { return r.m.Reconnected() }},
	{event: "Checked", from: []Phase{Held, Leaving}, when: "it failed, and no other check is scheduled", to: same, do: CheckLater, act: checked(false, true)},
	{event: "Checked", from: []Phase{Leaving}, when: "no other check is scheduled", to: same, do: CheckLater, act: checked(false, false)},
	{event: "Checked", from: []Phase{Held}, when: "Redis granted it again", to: Lost, do: Lose, act: func(r *rig) Step {
		return r.m.Checked(&r.at, Checked{Epoch: r.m.Epoch(), Again: true, Sent: r.at.Now, TTL: time.Second})
	}},
	{event: "Checked", from: []Phase{Held}, when: "it is another session's, or free", to: Lost, do: Lose, act: checked(false, false)},
	{event: "Checked", from: []Phase{Held}, when: "it is ours", to: same, do: Nothing, act: checked(true, false),
		then: func(t *testing.T, r *rig, _ Step) {
			assert.True(t, r.m.Hold().Lease.Until().Before(start.Add(time.Second)))
		}},
	{event: "Wanted", from: []Phase{Held, Leaving}, when: "this hold, or a later one", to: same, do: Notify, act: func(r *rig) Step { return r.m.Wanted(r.next) }},
	{event: "Wanted", from: []Phase{Idle, Lapsed}, when: "not dismissed yet", to: same, do: Dismiss, act: func(r *rig) Step { return r.m.Wanted(r.next) }},
	{event: "Wanted", from: []Phase{Vacant, Asking, Held}, when: "otherwise", to: same, do: Nothing, act: func(r *rig) Step { return r.m.Wanted(0) }},
	{event: "Dismiss", from: []Phase{Idle, Lapsed}, when: "not dismissed yet", to: same, do: Dismiss, act: func(r *rig) Step { return r.m.Dismiss() }},
	{event: "Dismiss", from: []Phase{Vacant, Held, Handed}, when: "", to: same, do: Nothing, act: func(r *rig) Step { return r.m.Dismiss() }},
}

// isUsual checks that the next copy of an attempt that was to keep the lock is of the usual kind.
func isUsual(t *testing.T, r *rig, _ Step) {
	assert.Zero(t, r.m.run)
	req := r.send()
	assert.Equal(t, r.next, req.Epoch)
	assert.Equal(t, backend.AcquireRequest{Epoch: 2, Owner: "o", Holds: 1, Lease: r.at.Lease, NotAfter: r.at.Now.Add(r.at.CommandTimeout), Queue: r.head.Waits,
		Tokens: 1, Patience: r.at.Patience, GrantTTL: r.at.GrantTTL}, req)
}

// own2 calls own, unless a Resume is under way already.
func own2(r *rig) {
	if r.m.Phase() != Resuming {
		own(r)
	}
}

// text returns a row as the doc comment of Machine has it.
func (r row) text() string {
	var names []string
	for _, p := range r.from {
		names = append(names, p.String())
	}
	from := strings.Join(names, " ")
	if len(names) == int(phases) {
		from = "any"
	}
	to, do := "=", "–"
	if r.to != same {
		to = r.to.String()
	}
	switch r.do {
	case request:
		do = "request"
	case none, Nothing:
	default:
		do = r.do.String()
	}
	return strings.TrimRight(fmt.Sprintf("%-16s %-25s %-54s %-8s %s", r.event, from, r.when, to, do), " ")
}

func TestEachRowOfTheTableIsWhatHappens(t *testing.T) {
	for _, row := range table {
		for _, from := range row.from {
			t.Run(fmt.Sprintf("%s/%v/%s", row.event, from, row.when), func(t *testing.T) {
				r := newRig()
				if row.begin != nil {
					row.begin(r)
				}
				r.reach(from)
				require.Equal(t, from, r.m.Phase())
				s := row.act(r)
				to := row.to
				if to == same {
					to = from
				}
				assert.Equal(t, to, r.m.Phase())
				assert.Equal(t, row.do, s.Do)
				if row.then != nil {
					row.then(t, r, s)
				}
			})
		}
	}
}

func TestTheTableIsInTheDocComment(t *testing.T) {
	source, err := os.ReadFile("machine.go")
	require.NoError(t, err)
	var want, got []string
	seen := map[string]bool{}
	for _, r := range table {
		text := r.text()
		assert.False(t, seen[text], "it is there twice: %s", text)
		seen[text] = true
		want = append(want, text)
	}
	_, comment, _ := strings.Cut(string(source), "\n// A Machine is ")
	comment, _, _ = strings.Cut(comment, "\ntype Machine")
	for line := range strings.Lines(comment) {
		if row, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "//\t"); ok {
			got = append(got, row)
		}
	}
	assert.Equal(t, strings.Join(want, "\n"), strings.Join(got, "\n"))
}

// Each transition must be in a row of the table, because nothing needs a transition without a row.
func TestEachTransitionIsInTheTable(t *testing.T) {
	var used [phases]set
	for _, r := range table {
		for _, from := range r.from {
			if r.to != same {
				used[from] |= setOf(r.to)
			}
		}
	}
	used[Idle] |= setOf(Handed) // the first half of what follows an idle hold
	for from, next := range successors {
		for to := range phases {
			if has(next, to) {
				assert.True(t, has(used[from], to), "no row goes from %v to %v", Phase(from), to)
			}
		}
	}
}
