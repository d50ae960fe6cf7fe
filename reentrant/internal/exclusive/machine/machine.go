// Package machine decides what a session does about one lock. A [Machine] records what the session has and what it wants, and
// computes what follows from each event. The package has no mutex, channel, context, goroutine or clock. The driver has a
// mutex, under which it calls one method of the Machine for each event. Then the driver unlocks the mutex, and carries out the
// [Step] that the method returned.
//
// The local queue belongs to the driver. Its baton is the right to act: only the goroutine that has the baton may begin, send,
// exit, resume and clean up. The driver handles the keeper's replies and pushed messages without the baton.
//
// The head is the owner that has the baton and wants the lock. Its attempt is a request that is sent until Redis has
// replied; each sending is a copy.
package machine

import (
	"fmt"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/lease"
)

// A Phase is the state of a session's lock.
type Phase uint8

// The phases.
const (
	Vacant   Phase = iota // nothing is under way
	Begun                 // the head has the baton, and its attempt needs a new epoch
	Asking                // a copy of the head's attempt is under way
	Parked                // no copy of the head's attempt is under way: the head waits for a grant, or until it asks again
	Resuming              // the head takes up a hold of another session
	Held                  // an owner has the lock, and its lease was trusted at the last look
	Leaving               // an owner has the lock, but is in an await or a Resume: that the epoch has ended proves no loss
	Lost                  // the hold was lost; its owner has not unlocked, and still has the baton
	Handed                // the last owner left the hold to the goroutine that has the baton now
	Idle                  // the last owner left the hold, and the baton is free; the hold has a reference to the lock state
	Lapsed                // an idle hold was lost; its reference to the lock state is left
	Freeing               // a release is under way
	phases
)

var phaseNames = [phases]string{"vacant", "begun", "asking", "parked", "resuming", "held", "leaving", "lost", "handed", "idle", "lapsed", "freeing"}

func (p Phase) String() string { return phaseNames[p] }

// A set is a set of phases, with a bit for each phase in it.
type set uint16

func setOf(all ...Phase) (s set) {
	for _, p := range all {
		s |= 1 << p
	}
	return s
}

// successors has, for each phase, the phases that may follow it according to the table at Machine.
var successors = [phases]set{
	Vacant:   setOf(Begun, Parked, Resuming, Freeing),
	Begun:    setOf(Asking, Resuming, Vacant),
	Asking:   setOf(Held, Parked, Begun, Vacant),
	Parked:   setOf(Asking, Held, Resuming, Vacant),
	Resuming: setOf(Held, Vacant),
	Held:     setOf(Leaving, Lost, Handed, Idle, Freeing, Vacant),
	Leaving:  setOf(Held, Lost, Vacant),
	Lost:     setOf(Held, Vacant),
	Handed:   setOf(Held, Begun, Freeing, Vacant),
	Idle:     setOf(Handed, Lapsed, Freeing),
	Lapsed:   setOf(Begun, Parked, Resuming, Freeing),
	Freeing:  setOf(Vacant),
}

// enter changes the phase. No other function does. It panics if successors does not have the change.
func (m *Machine[K]) enter(next Phase) {
	if next != m.phase && successors[m.phase]&(1<<next) == 0 {
		panic(fmt.Sprintf("reentrant: bug: a lock went from %v to %v", m.phase, next))
	}
	m.phase = next
}

// clear forgets the hold, and enters a phase without a hold.
func (m *Machine[K]) clear(next Phase) {
	m.enter(next)
	alone := m.hold.alone && next == Freeing
	if alone && m.wanted < m.hold.epoch {
		m.judge(false)
	}
	m.hold = hold[K]{alone: alone}
	if next != Lapsed {
		m.lingerUntil = 0
	}
}

// Options are the session's options that the machine needs.
type Options struct {
	Opened time.Time // when the session was opened

	Lease, Heartbeat, CommandTimeout, Patience, GrantTTL time.Duration

	Spin        int           // how often the head asks before it parks
	Handoffs    int           // how many local hand-overs a turn may have
	HandoffTime time.Duration // how long a turn may last
	Generation  time.Duration // a turn that has lasted this long ends after as many hand-overs as it had waiters at its start
	Linger      time.Duration // how long a hold may be idle
	Block       int           // how many tokens an attempt asks for if in Redis the hold is to belong to the session
	CohortOwner string        // the owner that is written in Redis for a hold that belongs to the session
}

// A Moment is what the driver knows at the moment of an event.
type Moment struct {
	*Options
	Now       time.Time
	Ahead     time.Duration // how far the wall clock has got ahead of the monotonic one
	Seen      backend.Token // the highest token that the session has seen
	Field     string        // the attempt's owner as written in Redis; set for events that send a copy or accept a grant
	Waiters   int           // how many goroutines wait in the local queue
	Abandoned bool          // the session has given up its holds: no owner becomes a holder
}

// An instant is a point in time: the session's age plus one nanosecond, so that 0 means no instant. It takes a third of
// the memory of a time.Time.
type instant = time.Duration

func (at *Moment) now() instant { return at.Now.Sub(at.Opened) + 1 }

func (o *Options) instant(t time.Time) instant {
	if t.IsZero() {
		return 0
	}
	return t.Sub(o.Opened) + 1
}

func (o *Options) time(i instant) time.Time {
	if i == 0 {
		return time.Time{}
	}
	return o.Opened.Add(i - 1)
}

// A hold is the lock as an owner of this session has it, as the last owner left it, or as the head wants it.
type hold[K comparable] struct {
	owner    K
	cohort   bool // in Redis the hold belongs to the session, not to its owner
	alone    bool // cohort is set because the session was alone with the lock (see alone.go); in Freeing, for the last hold
	portable bool // another session can resume the hold
	failing  bool // the last renewal failed
	absent   bool // Redis no longer had the hold at the last renewal, while its owner was leaving
	checking bool // a check is scheduled
	epoch    uint64
	op       uint64 // the number of the hold's last operation in Redis
	token    backend.Token
	last     backend.Token // the last token of the hold's block
	span     time.Duration // the length of lease that the attempt asks for, and later the renewals
	stays    instant       // until then no other owner gets the lock, even after a release; before Held: for how long; 0: none
	lease    lease.Lease
	first    backend.Token // the first token of the hold's block
}

// A Machine is the state of one lock in a session. Only its methods change it. K is the type of the owners. The zero value
// is a lock of which the session has nothing. Machines can be compared with ==, and a copy of a Machine is independent.
//
// Each row has an event, the phases in which the event may happen, a condition, the phase that follows (= is no change), and
// the step. Of several rows for one event and phase, the first whose condition is met applies. Queries are not in the table.
//
//	Inherit          handed idle               in cohort mode, with tokens, lease and turn left       held     settle
//	Inherit          handed idle               kept alone, with tokens, lease and turn left           held     settle
//	Inherit          idle                      otherwise                                              handed   –
//	Inherit          vacant handed lapsed      otherwise                                              =        –
//	Begin            vacant lapsed             its place in Redis came with a signal                  parked   park
//	Begin            vacant handed idle        the session is alone with the lock                     begun    ask anew
//	Begin            vacant handed idle lapsed otherwise                                              begun    ask anew
//	Send             begun                     under a new epoch                                      asking   request
//	Send             parked                    under the same epoch                                   asking   request
//	Replied          asking                    granted, and the session has given up its holds        vacant   pass on
//	Replied          asking                    granted in time                                        held     settle
//	Replied          asking                    granted too late to be trusted; a fixed lease          begun    ask anew
//	Replied          asking                    granted too late to be trusted; to be kept alone       begun    ask anew
//	Replied          asking                    granted too late to be trusted                         parked   ask
//	Replied          asking                    stale                                                  begun    ask anew
//	Replied          asking                    another session has it, which was to be kept alone     begun    ask anew
//	Replied          asking                    another session has it, and the head spins             parked   ask
//	Replied          asking                    another may keep it idle; the first time, for a try    parked   pause
//	Replied          asking                    the same, for a try that was to keep it alone          begun    pause
//	Replied          asking                    another session has it, for a try                      vacant   leave
//	Replied          asking                    another session has it                                 parked   park
//	Unanswered       asking                    refused, or for a try; it may have been carried out    vacant   pass on
//	Unanswered       asking                    refused, or for a try                                  vacant   leave
//	Unanswered       asking                    the lock was to be kept alone                          begun    pause
//	Unanswered       asking                    it may have been carried out                           parked   pause
//	Unanswered       asking                    otherwise                                              parked   pause
//	Pushed           any                       for the ticket of an owner that is not the head yet    =        signal
//	Pushed           asking parked             for the attempt, which waits                           =        wake
//	Pushed           any                       for an earlier epoch                                   =        –
//	Pushed           handed idle               for this hold                                          =        –
//	Pushed           vacant begun held leaving for an attempt that is over, and the baton is in use   =        –
//	Pushed           lost freeing              for an attempt that is over, and the baton is in use   =        –
//	Pushed           vacant lapsed             for an attempt that is over, and the baton is free     =        orphan
//	Woken            parked                    a grant to trust; the session has given up its holds   vacant   pass on
//	Woken            parked                    a grant to trust                                       held     settle
//	Woken            parked                    otherwise                                              =        ask
//	Woken            begun                                                                            =        ask anew
//	Overtaken        vacant handed idle lapsed                                                        begun    ask anew
//	GiveUp           begun parked              Redis may have something of the session                vacant   pass on
//	GiveUp           begun parked              otherwise                                              vacant   leave
//	HandOver         held                      the next owner in line has the baton                   handed   –
//	Linger           held                      in cohort mode, trusted, not wanted, with tokens left  idle     –
//	Linger           held                      kept alone, the same, and not renewed                  idle     –
//	Linger           held lost                 otherwise                                              =        –
//	Exit             lost                                                                             vacant   pass on
//	Exit             held                      the lease is over                                      vacant   pass on
//	Exit             held                      it must last longer, and stays taken                   freeing  release
//	Exit             held                      otherwise                                              freeing  release
//	Clean            vacant handed idle lapsed                                                        freeing  release
//	Released         freeing                   Redis has nothing of the session any more              vacant   –
//	Released         freeing                   otherwise                                              vacant   –
//	Trust            held leaving              the lease can be trusted                               =        ask
//	Trust            held leaving              otherwise                                              lost     lose
//	Trust            lost                                                                             =        –
//	Operated         held leaving              Redis no longer has the hold                           lost     lose
//	Operated         held leaving lost         otherwise                                              =        –
//	Finish           held                                                                             =        settle
//	Finish           lost                                                                             vacant   pass on
//	StartLeaving     held                                                                             leaving  –
//	StartLeaving     lost                                                                             =        –
//	Stay             leaving                                                                          held     –
//	Stay             lost                                                                             =        –
//	Left             leaving                                                                          vacant   leave
//	Left             lost                                                                             =        –
//	Resume           vacant lapsed                                                                    resuming ask anew
//	Resume           begun parked              the head lets it go first                              resuming ask anew
//	Resume           handed idle                                                                      handed   pass on
//	ResumeOwn        held                                                                             leaving  ask anew
//	ResumeOwn        lost                                                                             =        ask anew
//	Resumed          resuming leaving lost     too late to be trusted                                 =        ask
//	Resumed          resuming leaving lost     overtaken                                              =        ask anew
//	Resumed          resuming                  taken up, and the session has given up its holds       vacant   pass on
//	Resumed          resuming                  taken up                                               held     settle
//	Resumed          leaving lost              the same hold                                          held     replace
//	Resumed          leaving lost              another hold of the owner                              held     replace
//	Resumed          leaving                   the same, and the session has given up its holds       held     replace
//	Resumed          resuming                  not there; Redis may have something of the session     vacant   pass on
//	Resumed          resuming                  not there                                              vacant   leave
//	Resumed          leaving                   not there                                              lost     lose
//	ResumeUnanswered resuming                  refused                                                vacant   leave
//	ResumeUnanswered leaving                   refused; it may have been carried out                  lost     lose
//	ResumeUnanswered leaving                   refused                                                held     –
//	ResumeUnanswered resuming leaving lost     it may have been carried out                           =        ask anew
//	ResumeUnanswered resuming leaving lost     otherwise                                              =        ask
//	NotResumed       resuming                  the caller gives up                                    vacant   leave
//	NotResumed       leaving                   a copy may have been carried out                       lost     lose
//	NotResumed       leaving                   otherwise                                              held     –
//	Tick             lost                      Redis may still have the lease                         =        –
//	Tick             lost                      the lease is over in Redis too                         =        evict
//	Tick             held leaving              the lease is over                                      lost     lose
//	Tick             idle                      idle for long enough, and not dismissed yet            =        dismiss
//	Tick             idle                      kept alone, and there may be another server            =        dismiss
//	Tick             lapsed                    not dismissed yet                                      =        dismiss
//	Tick             held leaving              its renewal is due                                     =        renew
//	Tick             handed idle               in cohort mode, its renewal is due                     =        renew
//	Tick             vacant asking held idle   otherwise                                              =        –
//	Renewed          leaving                   Redis no longer has it                                 =        –
//	Renewed          held                      Redis no longer has it                                 lost     lose
//	Renewed          handed                    Redis no longer has it                                 vacant   –
//	Renewed          idle                      Redis no longer has it                                 lapsed   –
//	Renewed          leaving                   Redis granted it again                                 =        –
//	Renewed          held                      Redis granted it again                                 lost     lose
//	Renewed          handed                    Redis granted it again                                 vacant   –
//	Renewed          idle                      Redis granted it again                                 lapsed   –
//	Renewed          held leaving handed idle  it failed                                              =        extended
//	Renewed          held leaving handed idle  otherwise                                              =        extended
//	Renewed          held leaving handed idle  the lease is over, and no Tick has seen that yet       =        extended
//	Renewed          lost                      the loss was reported, whatever Redis replies          =        –
//	Renewed          vacant asking held lost   of a hold that has ended                               =        –
//	Retaken          handed                                                                           =        –
//	Lose             held leaving                                                                     lost     lose
//	Lose             handed                                                                           vacant   –
//	Lose             idle                                                                             lapsed   –
//	Lose             lost                                                                             =        –
//	Evicted          lost                                                                             vacant   –
//	Taken            any                                                                              =        –
//	Reconnected      any                                                                              =        –
//	Checked          held leaving              it failed, and no other check is scheduled             =        check later
//	Checked          leaving                   no other check is scheduled                            =        check later
//	Checked          held                      Redis granted it again                                 lost     lose
//	Checked          held                      it is another session's, or free                       lost     lose
//	Checked          held                      it is ours                                             =        –
//	Wanted           held leaving              this hold, or a later one                              =        notify
//	Wanted           idle lapsed               not dismissed yet                                      =        dismiss
//	Wanted           vacant asking held        otherwise                                              =        –
//	Dismiss          idle lapsed               not dismissed yet                                      =        dismiss
//	Dismiss          vacant held handed                                                               =        –
type Machine[K comparable] struct {
	// The fields that a local hand-over uses come first, so that they share cache lines.
	phase      Phase
	unreleased bool          // Redis may have a hold, a grant or a place of this session, to be released
	dismissed  bool          // a clean-up is on its way to the idle hold
	operating  bool          // an operation of the holder is under way, and may change what Redis has
	run        uint8         // how often in a row the session had the lock while no other session waited
	wary       uint8         // how often another session asked for the lock before keeping the lock had paid (see judge)
	hold       hold[K]       // from Held to Idle; before Held: what the head wants, without an epoch; in Freeing: stays and alone
	turn       turn          // the run of local hand-overs
	used       backend.Token // the last token used of the block that came with the last attempt; 0: all of them
	epoch      uint64        // the last epoch that was sent
	wanted     uint64        // another session has asked for every hold with this epoch or an earlier one
	moved      uint64        // another session may have taken up any hold with this epoch or an earlier one

	lingerUntil instant       // when the idle hold is given back
	doubtUntil  instant       // a copy of an attempt may be under way until then
	prior       backend.Prior // how the last reply left the lock in Redis; none if the outcome of a later command is not known
	att         attempt       // used from Begun to Resuming, and while an owner resumes a hold of this session
	grant       grant         // the latest grant that was pushed for the attempt, or for a ticket
}

// Reuse readies a machine for its next use, by the same lock or by another one.
func (m *Machine[K]) Reuse(sameLock bool) {
	m.unreleased, m.used = false, 0
	if !sameLock {
		m.prior, m.doubtUntil, m.run, m.wary = backend.Prior{}, 0, 0, 0
	}
}

// An Action is what the driver does after an event.
type Action uint8

// The actions.
const (
	Nothing    Action = iota
	Settle            // make the head the holder, with the hold count Holds; after an operation, give the baton back to the holder
	Ask               // send a copy of the attempt, or of the operation
	AskAnew           // send a copy under a new epoch
	Park              // wait for a grant, a heartbeat, or the end of the holder's lease if TTL says when; then call Woken
	Pause             // sleep for as long as the step's Wait says; if Wait is 0, as long as after a failure; then call Woken
	Leave             // free the baton, or pass it on; no release is needed, since Redis has nothing of the session
	PassOn            // pass the baton to an owner, which takes over what Redis has; if no owner waits, call Clean
	Release           // send ReleaseRequest until Redis has replied; then call Released
	Replace           // the owner's hold has a new epoch; if Holds is not 0, the owner has another hold, with that hold count
	Lose              // report the loss and notify the owner; if Redis has replied that the hold is gone, also evict the owner
	Evict             // take the baton from the owner of the lost hold, and pass the baton on; then call Evicted
	Renew             // renew the lease
	Extended          // count and report what the reply to a renewal has changed
	CheckLater        // check again after a heartbeat
	Dismiss           // send a clean-up to the idle hold; then call Arrive
	Wake              // wake the parked head; then call Woken
	Signal            // wake the owner of the ticket to which the lock was granted
	Orphan            // release what Redis granted; this needs no baton
	Notify            // notify the owner of the hold that another session waits
	actions
)

var actionNames = [actions]string{"nothing", "settle", "ask", "ask anew", "park", "pause", "leave", "pass on",
	"release", "replace", "lose", "evict", "renew", "extended", "check later", "dismiss", "wake", "signal", "orphan", "notify"}

func (a Action) String() string { return actionNames[a] }

// A Step is what the driver carries out after an event, without the mutex. A Step is small, since it is passed along the fast
// path: the driver reads a request from the machine when it sends the request.
type Step struct {
	Do      Action
	Check   bool         // ask Redis whether the hold is still this session's: call Checking first, and Checked with the reply
	Dropped bool         // the hold is no longer idle: its reference to the lock state is the caller's now
	Yielded bool         // the attempt gave the lock to another session
	Woken   bool         // with Park: the grant has come already, so call Woken without a wait
	Lost    bool         // the caller's hold is lost
	Change  lease.Change // with Extended: what the reply has changed
	Holds   int
	Why     string        // why the hold was lost; empty if no loss is to be reported
	Wait    time.Duration // with Pause: how long to sleep; 0: as long as after a failure
	TTL     time.Duration // with Park: what is left of the holder's lease; negative if that is not known
	Wake    time.Time     // when to look at the hold again; zero: no need
}

// Owned reports whether an owner has the hold, as far as this process knows.
func (m *Machine[K]) Owned() bool { return m.phase == Held || m.phase == Leaving }

// left reports whether an owner left the hold, and the hold has not been lost since.
func (m *Machine[K]) left() bool { return m.phase == Handed || m.phase == Idle }

// Phase returns the phase.
func (m *Machine[K]) Phase() Phase { return m.phase }

// OwnedBy reports whether the given owner has the hold, as far as this process knows.
func (m *Machine[K]) OwnedBy(owner K) bool { return m.Owned() && m.hold.owner == owner }

// Epoch returns the epoch of the hold, 0 if there is none.
func (m *Machine[K]) Epoch() uint64 { return m.hold.epoch }

// A Hold is what was known of the hold at one moment.
type Hold[K comparable] struct {
	Phase  Phase
	Owner  K             // the last owner, if the hold was left to the next one
	Cohort bool          // in Redis the hold belongs to the session, not to its owner
	Epoch  uint64        // 0 if there is no hold
	Op     uint64        // the number of the operation under way, or of the last one
	First  backend.Token // the first token of the hold's block: a reply with another first token is about another hold
	Token  backend.Token
	Span   time.Duration // the lease that renewals ask for
	Lease  lease.Lease
}

// Hold returns what is known of the hold now.
func (m *Machine[K]) Hold() Hold[K] {
	h := &m.hold
	return Hold[K]{Phase: m.phase, Owner: h.owner, Cohort: h.cohort, Epoch: h.epoch, Op: h.op, First: h.first, Token: h.token, Span: h.span, Lease: h.lease}
}

// Owned reports whether an owner had the hold.
func (h *Hold[K]) Owned() bool { return h.Phase == Held || h.Phase == Leaving }

// BelongsTo reports whether the owner had the hold, or had lost it and not been evicted.
func (h *Hold[K]) BelongsTo(owner K) bool {
	return h.Owner == owner && (h.Owned() || h.Phase == Lost)
}

// Fixed returns the length of the hold's lease if that is a fixed one, else zero.
func (h *Hold[K]) Fixed() time.Duration {
	if h.Lease.Fixed() {
		return h.Span
	}
	return 0
}

// AtLeast returns for how long no other owner gets the lock, counted from began, the time when the hold began.
func (m *Machine[K]) AtLeast(o *Options, began time.Time) time.Duration {
	if m.hold.stays == 0 {
		return 0
	}
	return m.hold.stays - o.instant(began)
}

// Forgo lets another owner have the lock as soon as the hold is released: the hold need not last any longer.
func (m *Machine[K]) Forgo() { m.hold.stays = 0 }

// Sent returns the last epoch that was sent.
func (m *Machine[K]) Sent() uint64 { return m.epoch }

// IsWanted reports whether another session has asked for the hold.
func (m *Machine[K]) IsWanted() bool { return m.wanted >= m.hold.epoch }

// Unreleased reports whether Redis may have a hold, a grant or a place of this session.
func (m *Machine[K]) Unreleased() bool { return m.unreleased }
