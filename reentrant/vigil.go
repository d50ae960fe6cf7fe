package reentrant

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// A vigil shows Redis that a session's waiters for conditions are alive: one command per condition and heartbeat. The
// answer tells of signals whose messages were lost, and tells Redis that those which arrived have been heard. One
// goroutine does it for the whole session, and sleeps while nobody waits.
type vigil struct {
	s     *Session
	nudge chan struct{} // 1-buffered: there is a ticket again
	quit  chan struct{}
	done  sync.WaitGroup

	mu      sync.Mutex       // a leaf
	tickets map[*ticket]bool // true: signalled, to be acknowledged by one more beat
}

func newVigil(s *Session) *vigil {
	return &vigil{s: s, nudge: make(chan struct{}, 1), quit: make(chan struct{}), tickets: make(map[*ticket]bool)}
}

func (v *vigil) start() { v.done.Go(v.watch) }

func (v *vigil) stop() {
	close(v.quit)
	v.done.Wait()
}

// add beats for a ticket from now on.
func (v *vigil) add(t *ticket) {
	v.mu.Lock()
	v.tickets[t] = false
	v.mu.Unlock()
	select {
	case v.nudge <- struct{}{}:
	default:
	}
}

// signalled acknowledges a ticket with the next beat.
func (v *vigil) signalled(t *ticket) { v.change(t, true) }

// remove forgets a ticket: it was taken back.
func (v *vigil) remove(t *ticket) { v.change(t, false) }

func (v *vigil) change(t *ticket, keep bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, ok := v.tickets[t]; ok && keep {
		v.tickets[t] = true
		return
	}
	delete(v.tickets, t)
}

func (v *vigil) watch() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if v.empty() {
			timer.Stop()
		} else {
			cfg := &v.s.config
			timer.Reset(cfg.heartbeat - cfg.jitter(cfg.heartbeat/8))
		}
		select {
		case <-v.nudge:
		case <-timer.C:
			v.beat()
		case <-v.quit:
			v.beat() // what was signalled has been heard: nobody else is to be signalled for it
			return
		}
	}
}

func (v *vigil) empty() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.tickets) == 0
}

// group is the tickets of one condition.
type group struct {
	remote Remote
	name   string
}

// beat sends one command per condition.
func (v *vigil) beat() {
	for g, tickets := range v.groups() {
		epochs := make([]uint64, len(tickets))
		for i, t := range tickets {
			epochs[i] = t.epoch
		}
		ctx, cancel := context.WithTimeout(context.Background(), v.s.config.commandTimeout())
		v.s.stats.commands.Add(1)
		answers, err := g.remote.Beat(ctx, g.name, epochs)
		cancel()
		if err != nil || len(answers) != len(tickets) {
			continue // the next one comes in time
		}
		for i, t := range tickets {
			if answers[i] != Waited {
				v.heard(t)
			}
		}
	}
}

func (v *vigil) groups() map[group][]*ticket {
	v.mu.Lock()
	defer v.mu.Unlock()
	groups := make(map[group][]*ticket)
	for t := range v.tickets {
		g := group{t.remote, t.name}
		groups[g] = append(groups[g], t)
	}
	for _, tickets := range groups {
		slices.SortFunc(tickets, func(a, b *ticket) int { return cmp.Compare(a.epoch, b.epoch) })
	}
	return groups
}

// heard ends the vigil for a ticket that Redis has signalled. If its message was lost, this is what wakes it.
func (v *vigil) heard(t *ticket) {
	v.mu.Lock()
	delete(v.tickets, t)
	v.mu.Unlock()
	t.wake(false)
}
