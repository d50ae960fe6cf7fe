package condition

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/core"
)

// A heartbeat shows Redis that a session's waiters for conditions are alive, also those that were signalled and wait for
// the lock again. Once in a heartbeat's time it sends a beat: a command for each condition. The reply reports signals
// whose messages were lost. The command also has the tickets whose owners have the lock again, and only this
// acknowledges their signals: the reply to a beat may be lost, and an owner that was signalled may still leave without
// the lock. One goroutine sends the beats of the whole session, and sleeps while the session has no waiter.
type heartbeat struct {
	core  *core.Session
	nudge chan struct{} // 1-buffered: there is a ticket again
	again chan struct{} // 1-buffered: the channel to the backend was reopened, so messages may have been lost
	quit  chan struct{}
	done  sync.WaitGroup

	mu      sync.Mutex       // a leaf: no other mutex is locked under it
	tickets map[*Ticket]bool // true: its owner has the lock again, so one more beat acknowledges its signal
}

func newHeartbeat(s *core.Session) *heartbeat {
	return &heartbeat{
		core: s, nudge: make(chan struct{}, 1), again: make(chan struct{}, 1), quit: make(chan struct{}),
		tickets: make(map[*Ticket]bool),
	}
}

func (h *heartbeat) start() { h.done.Go(h.watch) }

func (h *heartbeat) stop() {
	close(h.quit)
	h.done.Wait()
}

// add adds a ticket to the beats from now on.
func (h *heartbeat) add(t *Ticket) {
	h.mu.Lock()
	h.tickets[t] = false
	h.mu.Unlock()
	select {
	case h.nudge <- struct{}{}:
	default:
	}
}

// beatNow has the next beat sent immediately: the reply reports signals whose messages were lost with the channel.
func (h *heartbeat) beatNow() {
	select {
	case h.again <- struct{}{}:
	default:
	}
}

// acknowledge has the next beat acknowledge a ticket's signal.
func (h *heartbeat) acknowledge(t *Ticket) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tickets[t] = true
}

// remove forgets a ticket: it was withdrawn, or its owner could not come back, and the signal goes to another waiter.
func (h *heartbeat) remove(t *Ticket) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.tickets, t)
}

func (h *heartbeat) watch() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	cfg := &h.core.Config
	var last time.Time
	for armed := false; ; {
		switch {
		case h.empty():
			timer.Stop()
			armed, last = false, time.Time{}
		case !armed: // one more ticket does not delay the beat
			timer.Reset(max(0, cfg.Heartbeat-cfg.Jitter(cfg.Heartbeat/8)-since(last)))
			armed = true
		}
		select {
		case <-h.nudge:
		case <-timer.C:
			armed, last = false, time.Now()
			h.beat()
		case <-h.again:
			armed, last = false, time.Now()
			h.beat()
		case <-h.quit:
			h.beat() // acknowledges the signals that are left
			return
		}
	}
}

// since returns how long ago t was, 0 if t is zero.
func since(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return time.Since(t)
}

func (h *heartbeat) empty() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.tickets) == 0
}

// A group identifies a condition, whose tickets go into the same command of a beat.
type group struct {
	remote backend.Conditions
	name   string
}

// beat sends one command for each condition, or more for a condition with many tickets. The commands are sent together, so
// that one without a reply does not delay the others.
func (h *heartbeat) beat() {
	limit := min(h.core.Config.CommandTimeout, h.core.Config.Heartbeat)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var sent sync.WaitGroup
	for g, tickets := range h.groups() {
		for _, part := range tickets.parts() {
			sent.Go(func() { h.send(ctx, g, part) })
		}
	}
	sent.Wait()
}

// send sends one command of a beat.
func (h *heartbeat) send(ctx context.Context, g group, tickets grouped) {
	h.core.Counts.Commands.Add(1)
	answers, err := g.remote.Beat(ctx, g.name, epochs(tickets.waiting), epochs(tickets.served))
	if err != nil || len(answers) != len(tickets.waiting) {
		return // the next beat comes in time
	}
	for _, t := range tickets.served {
		h.remove(t)
	}
	for i, t := range tickets.waiting {
		if answers[i] != backend.Waited {
			t.Wake(false) // in case the message of its signal was lost
		}
	}
}

func epochs(tickets []*Ticket) []uint64 {
	epochs := make([]uint64, len(tickets))
	for i, t := range tickets {
		epochs[i] = t.Epoch
	}
	return epochs
}

// grouped has the tickets of one condition for a beat: those of owners that wait, also for the lock after their signal, and
// those of owners that have the lock again (served).
type grouped struct{ waiting, served []*Ticket }

// maxBeat is how many tickets go into one command. Redis spends some 4 µs on each, and serves no other client meanwhile.
const maxBeat = 500

// parts splits the tickets into parts of one command each.
func (all grouped) parts() (parts []grouped) {
	for len(all.waiting)+len(all.served) > 0 {
		w := min(len(all.waiting), maxBeat)
		s := min(len(all.served), maxBeat-w)
		parts = append(parts, grouped{all.waiting[:w], all.served[:s]})
		all = grouped{all.waiting[w:], all.served[s:]}
	}
	return parts
}

func (h *heartbeat) groups() map[group]grouped {
	h.mu.Lock()
	defer h.mu.Unlock()
	groups := make(map[group]grouped)
	for t, served := range h.tickets {
		g := group{t.Remote, t.Name}
		all := groups[g]
		if served {
			all.served = append(all.served, t)
		} else {
			all.waiting = append(all.waiting, t)
		}
		groups[g] = all
	}
	for _, all := range groups {
		slices.SortFunc(all.waiting, byEpoch)
		slices.SortFunc(all.served, byEpoch)
	}
	return groups
}

func byEpoch(a, b *Ticket) int { return cmp.Compare(a.Epoch, b.Epoch) }
