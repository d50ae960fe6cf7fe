package faults

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/relock-go/relock/faults/history"
	"github.com/relock-go/relock/reentrant"
)

// While nothing goes wrong, a message takes up to twice usual, and a call takes a few messages.
const (
	prompt = time.Second // the longest time that each of these takes: a call that need not wait, a grant, a report, a signal
)

// disorder finds calls that break the order or are late. Most checks are made only for the time before the first fault.
func (w *world) disorder() (findings []string) {
	find := func(c call, format string, args ...any) {
		findings = append(findings, fmt.Sprintf("%s: %s%s, called %v: ", c.Client, c.Kind, c.about(), time.Duration(c.Call))+fmt.Sprintf(format, args...))
	}
	byLock := make(map[string][]call)
	for _, c := range w.calls {
		c.overstays(find)
		if c.Outcome == history.Pending { // its process died, so for other calls it is still open
			c.Return = broken
		}
		if c.Call < w.storm {
			byLock[queueOf(c.Lock)] = append(byLock[queueOf(c.Lock)], c)
		}
	}
	if !w.deaf() && !w.lags() { // lost messages, and a clock that is set back, cost commands
		findings = append(findings, w.waste()...)
	}
	for _, lock := range slices.Sorted(maps.Keys(byLock)) {
		calls := byLock[lock]
		slices.SortStableFunc(calls, func(a, b call) int { return int(a.Call - b.Call) })
		calm := calmCalls{calls: calls, end: w.storm, cohorts: w.cohorts(), late: w.lateness(), find: find}
		calm.judge()
	}
	return findings
}

// waste finds a calm in which sessions sent many more scripts than calls and heartbeats need. In nearly all worlds sessions
// send less than 1.1 scripts for each call and heartbeat.
func (w *world) waste() (findings []string) {
	need := 0
	for _, c := range w.calls {
		switch {
		case c.Call >= w.storm || c.Kind == history.Look:
			continue
		case c.waits() && c.Outcome != history.Pending:
			need += int((min(c.Return, w.storm) - c.Call) / simHeartbeat.Nanoseconds())
		}
		need++
	}
	if most := need * 13 / 10; w.scripts > most {
		findings = append(findings, fmt.Sprintf("until the storm the sessions sent %d scripts, and hardly needed more than %d", w.scripts, need))
	}
	return findings
}

// queueOf returns a name for what calls about a lock may wait for. Two locks that are taken together have the same one.
func queueOf(lock string) string {
	if lock == simNorth || lock == simSouth {
		return simEither
	}
	return lock
}

// overstays finds waits that go on after their time limit.
func (c call) overstays(find func(call, string, ...any)) {
	limit := c.limit + simLease/2 // in this time a command ends, and perhaps another one that opens the connection
	if c.Kind == history.Await {
		limit += simLease
	}
	waits := c.Kind == history.Acquire || c.Kind == history.Await
	if waits && c.Outcome != history.Pending && c.took() > limit {
		find(c, "it took %v", c.took())
	}
}

func (c call) took() time.Duration { return time.Duration(c.Return - c.Call) }

func (c call) waits() bool {
	return c.Kind == history.Await || c.Kind == history.Acquire && c.way != atOnce
}

// refusal reports whether a call failed with the error that it returns when others have the lock.
func (c call) refusal() bool {
	return c.Note == errNot.Error() || strings.Contains(c.Note, context.DeadlineExceeded.Error())
}

// full reports whether a call was refused because of WithMaxWaiting.
func (c call) full() bool {
	return c.terms.most > 0 && strings.Contains(c.Note, reentrant.ErrQueueFull.Error())
}

// calmCalls are the calls about one name, in the order in which they began, while nothing goes wrong.
type calmCalls struct {
	calls   []call
	end     int64
	cohorts bool
	late    time.Duration // what a lost message costs
	find    func(call, string, ...any)
}

func (m calmCalls) judge() {
	for i, c := range m.calls {
		if c.Return > m.end {
			continue
		}
		m.succeeds(c)
		m.isBounded(c)
		switch {
		case c.Kind == waitedFor && m.late == 0:
			m.isReported(c)
		case c.Kind == waitedFor:
		case c.Kind == signalled && c.Outcome == history.OK:
			m.wakes(c)
		case c.Kind == history.Acquire && c.Outcome == history.OK || c.Kind == history.Await && c.Outcome == history.OK:
			m.isPrompt(i, c)
		case c.way == atOnce && c.Note == errNot.Error(): // not if the time to connect of another call was over
			m.hasReason(c)
		}
	}
}

// succeeds finds errors, losses, and calls that take long although they have nothing to wait for.
func (m calmCalls) succeeds(c call) {
	if c.extra || c.full() {
		return
	}
	ok := c.Outcome == history.OK || c.Outcome == history.No && c.refusal() || c.Outcome == history.Lost && (c.known || c.held.over(c.Return)) ||
		c.Kind == history.Await && c.Outcome == history.Lost && c.took() >= c.limit+simLease-time.Second
	if !ok {
		m.find(c, "%s (%s) although nothing had gone wrong", c.Outcome, c.Note)
	}
	atOnce := c.Kind != history.Await && c.Kind != waitedFor && !c.waits()
	if atOnce && c.took() > prompt+m.late {
		m.find(c, "it took %v", c.took())
	}
	if c.waits() && c.Outcome == history.No && c.took() < c.limit-time.Millisecond {
		m.find(c, "it gave up after %v of %v", c.took(), c.limit)
	}
	if c.Kind == history.Acquire && c.waits() && c.Outcome == history.No && c.took() > c.limit+prompt+m.late {
		m.find(c, "it took %v instead of %v", c.took(), c.limit)
	}
}

// isPrompt finds a grant that comes too long after the event that allowed it. An example of such an event is the end of a hold.
func (m calmCalls) isPrompt(i int, c call) {
	since := c.Call
	overtaken := 0
	if c.Kind == history.Await {
		since += c.limit.Nanoseconds()
	}
	for j, other := range m.calls {
		if other.Call > c.Return || j == i {
			continue
		}
		switch {
		case other.Kind == history.Unlock, other.Kind == history.Await, other.Kind == signalled,
			other.Kind == history.Acquire && other.Client != c.Client:
			since = max(since, min(other.Return, c.Return)) // a grant may overtake the reply
		}
		if ends := other.held.ends(); ends <= c.Return+prompt.Nanoseconds() { // a lease begins before the reply arrives
			since = max(since, min(ends, c.Return))
		}
		if j > i && other.Return < c.Return && c.Kind == history.Acquire && other.Kind == history.Acquire && other.Outcome == history.OK && !other.again &&
			other.Call > c.Call+prompt.Nanoseconds() {
			overtaken++
		}
	}
	patience := prompt + m.late
	if c.held.ends() > 0 {
		patience += simHeartbeat // a waiter asks again by itself
	}
	if m.late > 0 && c.Lock == simBook {
		patience += simHeartbeat // a session that does not hear of a writer keeps its right to read for two heartbeats
	}
	// A permit gets the number that is free when its session hears of it. So where messages are lost, permits are granted
	// promptly, but their numbers are not.
	numbered := strings.HasPrefix(c.Lock, simDesks+"#")
	if late := time.Duration(c.Return - since); late > patience && (!numbered || m.late == 0) {
		m.find(c, "nothing happened for %v before", late)
	}
	if other := m.overtaker(c); other != nil {
		m.find(c, "%s of the same process came later and was served before, at %v", other.Client, time.Duration(other.Return))
	}
	if exclusive := c.Lock == simLeft || c.Lock == simRight; exclusive && overtaken > mostOvertakes {
		m.find(c, "%d that came more than %v later were served before", overtaken, prompt)
	}
}

// overtaker returns a call of the same process that waited later, and was served before.
func (m calmCalls) overtaker(c call) *call {
	inLine := func(c call) bool {
		return c.Kind == history.Acquire && c.waits() && !c.again && c.Lock != simFerry && !strings.HasPrefix(c.Lock, simDesks) && queueOf(c.Lock) != simEither
	}
	if !inLine(c) || c.terms.unfair {
		return nil
	}
	for i, other := range m.calls {
		if inLine(other) && other.Process == c.Process && other.Outcome == history.OK && other.Client != c.Client &&
			c.Call+time.Millisecond.Nanoseconds() < other.Call && other.Return+time.Millisecond.Nanoseconds() < c.Return {
			return &m.calls[i]
		}
	}
	return nil
}

// isBounded finds waits behind more callers of the process than WithMaxWaiting allows, and refusals behind fewer.
func (m calmCalls) isBounded(c call) {
	if c.terms.most == 0 || !c.waits() || c.again {
		return
	}
	const instant = int64(time.Millisecond)
	sure, perhaps := 0, 0
	for _, other := range m.calls {
		if other.Process != c.Process || other.Client == c.Client || !other.waits() || other.again || other.full() {
			continue
		}
		if other.Call < c.Return+instant && other.Return > c.Call-instant {
			perhaps++
		}
		if other.Call < c.Call-instant && other.Return > c.Return+instant {
			sure++
		}
	}
	switch {
	case c.full() && perhaps < c.terms.most:
		m.find(c, "it was refused while %d waited", perhaps)
	case !c.full() && sure >= c.terms.most && c.took() > prompt:
		m.find(c, "it waited while %d waited already", sure)
	}
}

// hasReason finds tries that failed although no owner had the lock, or had asked for it lately.
func (m calmCalls) hasReason(c call) {
	if c.Lock != simLeft && c.Lock != simRight && c.Lock != simGate {
		return
	}
	nearby := (2*prompt + m.late).Nanoseconds()
	if m.cohorts {
		nearby += simLinger.Nanoseconds() // a session that keeps the lock may give it up too late for a try
	}
	had := make(map[string]int)
	for _, other := range m.calls {
		switch {
		case other.Client == c.Client && other.Call >= c.Call || other.Call > c.Return+nearby:
		case other.Return+nearby > c.Call:
			return
		default:
			had[other.Client] = other.held.depth
		}
	}
	for _, holds := range had {
		if holds > 0 {
			return
		}
	}
	m.find(c, "it got nothing, though no owner had it")
}

// mostOvertakes allows for an owner behind three others of its process: before each of these four owners, each of the two other
// processes may have a turn. Hardly any call is overtaken six times.
const mostOvertakes = 12

// isReported checks that a holder that asks for notices is notified of each waiter, and promptly. A waiter that soon leaves may
// have left before its request arrived, or be reported after it has left. A caller that waits for permits of its own process is
// reported only in that process.
func (m calmCalls) isReported(c call) {
	told, waited := c.Outcome == history.OK, false
	shared := c.Lock == simBook || c.Lock == simSeats
	lately := prompt
	if shared {
		lately += simHeartbeat * 5 / 4 // for so long a waiter that has left may still count
	}
	for _, other := range m.calls {
		asks := other.waits() || (m.cohorts || shared) && other.way == atOnce // a try reaches a holder that might keep the lock
		if other.Client == c.Client || !asks || other.Call > c.Return || c.Read && other.Read {
			continue
		}
		waited = waited || other.Return+lately.Nanoseconds() > c.Call
		begins := max(other.Call, c.Call)
		must := other.waits() && other.Kind == history.Acquire && (c.Lock != simSeats || other.Process == c.Process || m.needsOthers(other))
		if shared && c.Call < 2*simLease.Nanoseconds() {
			must = false // the holder may have had it before its channel was open, and a message that was lost is repeated late
		}
		if must && time.Duration(min(other.Return, c.Return)-begins) > prompt {
			m.find(c, "%s had waited since %v", other.Client, time.Duration(begins))
		}
	}
	if told && !waited {
		m.find(c, "no session waited")
	}
}

// needsOthers reports whether permits of other processes can serve a call that waits for permits: no caller of its own process
// comes before it, and the callers of its process that have permits leave enough of the limit.
func (m calmCalls) needsOthers(c call) bool {
	had := make(map[string]int)
	for _, other := range m.calls {
		if other.Process != c.Process || other.Client == c.Client || other.Call > c.Return {
			continue
		}
		if other.Return > c.Call && (other.Kind == history.Acquire || other.Kind == history.Unlock) {
			return false
		}
		had[other.Client] = 0
		if other.held.depth > 0 {
			had[other.Client] = other.Units
		}
	}
	units := c.Units
	for _, permits := range had {
		units += permits
	}
	return units <= simSeatsFree
}

// wakes checks that a signal wakes the waiter that has waited longest, and SignalAll all waiters. A waiter whose limit ends at
// about the time of the signal may have been that waiter, and have used up the signal.
func (m calmCalls) wakes(c call) {
	for _, other := range m.calls {
		if other.Kind != history.Await || other.Call+prompt.Nanoseconds() >= c.Call || other.Return <= c.Return {
			continue
		}
		switch expires := other.Call + other.limit.Nanoseconds(); {
		case expires+prompt.Nanoseconds() < c.Call:
			continue
		case expires <= c.Return+(prompt+m.late).Nanoseconds():
		case !other.woken && other.Outcome != history.Lost && other.Return < m.end: // one that was woken may find others inside
			m.find(c, "it did not wake %s, which had waited since %v", other.Client, time.Duration(other.Call))
		}
		if !c.all {
			return
		}
	}
}
