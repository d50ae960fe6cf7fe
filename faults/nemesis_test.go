package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/faults/history"
)

// A nemesis causes faults at random: in processes, in their links to Redis, and in Redis itself, all at the same time.
// The same seed gives the same sequence of faults, though not at the same moments of what they disturb.
//
// Clocks run at different speeds, within the margin of a lease. Where Redis may forget, clocks also differ by more, and jump,
// so that leases end early, which is one way to forget. Clocks never go back: if Redis had forgotten the last token as well,
// the next tokens would be lower.
type nemesis struct {
	*fleet
	servers  *pair // a master; in a durable round it has no replica
	register *Register
	proxy    *link          // of admin's connections to the master
	admin    rueidis.Client // for the goroutines that cause faults
	seed     uint64
	kind     // if durable, Redis has everything on disk, so that it keeps the locks over a restart, and is never flushed

	mu      sync.Mutex
	diary   []string
	forgets []history.Span
}

// An act is one fault, from its beginning to its end.
type act struct {
	name string
	do   func(r *rand.Rand)
}

// rage causes faults until ctx ends, and then repairs everything.
func (n *nemesis) rage(ctx context.Context) {
	var lanes sync.WaitGroup
	for i, acts := range [][]act{n.onProcesses(), n.onLinks()} {
		lanes.Go(func() { n.take(ctx, rand.New(rand.NewPCG(n.seed, uint64(i))), acts) })
	}
	n.take(ctx, rand.New(rand.NewPCG(n.seed, 9)), n.onServer()) // on this goroutine, since a restart that fails ends the test
	lanes.Wait()
}

// take carries out acts until ctx ends. The first act comes first, so that every round has it.
func (n *nemesis) take(ctx context.Context, r *rand.Rand, acts []act) {
	for next := acts[0]; ; next = acts[r.IntN(len(acts))] {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(r.Int64N(int64(n.role.Lease / 4)))): // the pause between faults
		}
		n.note("%s", next.name)
		next.do(r)
		n.note("%s has ended", next.name)
	}
}

func (n *nemesis) note(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.diary = append(n.diary, fmt.Sprintf("%d  ", history.Now())+fmt.Sprintf(format, args...))
}

// victim returns a random seat, most often one that has a lock: faults of the others matter less.
func (n *nemesis) victim(r *rand.Rand) *seat {
	if holder := n.seatOf(n.register.holder()); r.IntN(4) > 0 && holder != nil {
		return holder
	}
	return n.seats[r.IntN(len(n.seats))]
}

func (n *nemesis) seatOf(client string) *seat {
	for _, s := range n.seats {
		if strings.HasPrefix(client, s.name+".") {
			return s
		}
	}
	return nil
}

// stopHolder suspends the process that reads the register next, which therefore has a lock.
func (n *nemesis) stopHolder(d time.Duration) {
	stopped := make(chan *seat, 1)
	n.register.watch(func(client string) bool {
		s := n.seatOf(client)
		s.signal(syscall.SIGSTOP)
		stopped <- s
		return true
	})
	select {
	case s := <-stopped:
		time.Sleep(d) // how long it is suspended
		s.signal(syscall.SIGCONT)
	case <-time.After(n.role.Lease):
		n.register.watch(nil)
		if len(stopped) > 0 { // a process was suspended just when the time was over
			(<-stopped).signal(syscall.SIGCONT)
		}
	}
}

// some returns a random time between two times, which are given as numbers of leases.
func (n *nemesis) some(r *rand.Rand, least, most float64) time.Duration {
	return time.Duration((least + r.Float64()*(most-least)) * float64(n.role.Lease))
}

// respawn starts another process in the seat of a dead one.
func (n *nemesis) respawn(s *seat) {
	s.kill()
	if err := s.start(); err != nil {
		n.note("respawn: %v", err)
	}
}

func (n *nemesis) onProcesses() []act {
	return []act{
		{"a holder sleeps past its lease", func(r *rand.Rand) { n.stopHolder(n.some(r, 1.1, 1.8)) }},
		{"a process is killed", func(r *rand.Rand) { n.respawn(n.victim(r)) }},
		{"a process is killed while it sleeps", func(r *rand.Rand) {
			s := n.victim(r)
			s.signal(syscall.SIGSTOP)
			time.Sleep(n.some(r, 0.1, 0.5)) // how long it is suspended
			n.respawn(s)
		}},
		{"a process naps", func(r *rand.Rand) { n.victim(r).pause(n.some(r, 0.1, 0.8)) }},
		{"two processes sleep past their leases", func(r *rand.Rand) {
			var both sync.WaitGroup
			first := r.IntN(len(n.seats))
			for _, i := range []int{first, (first + 1) % len(n.seats)} {
				both.Go(func() { n.seats[i].pause(n.role.Lease * 3 / 2) })
			}
			both.Wait()
		}},
	}
}

func (n *nemesis) onLinks() []act {
	broken := func(least, most float64, faults ...func(*link)) func(*rand.Rand) {
		return func(r *rand.Rand) {
			l := n.victim(r).link
			for _, begin := range faults {
				begin(l)
				time.Sleep(n.some(r, least, most)) // how long it lasts
			}
			l.mend()
		}
	}
	return []act{
		{"requests are dropped", broken(0.1, 1.5, (*link).dropRequests)},
		{"replies are dropped", broken(0.1, 1.5, (*link).dropReplies)},
		{"replies are late", broken(0.2, 1, (*link).delayReplies)},
		{"replies are late, then dropped", broken(0.5, 1.5, (*link).delayReplies, (*link).dropReplies)},
		{"connections are reset", broken(0.05, 0.1, (*link).cut)},
	}
}

func (n *nemesis) onServer() []act {
	acts := []act{
		{"Redis restarts", func(*rand.Rand) { n.restart() }},
		{"connections are killed", func(*rand.Rand) { n.redis("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") }},
		{"subscriptions are killed", func(*rand.Rand) { n.redis("CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes") }},
		{"scripts are forgotten", func(*rand.Rand) { n.redis("SCRIPT", "FLUSH") }},
		{"Redis freezes", func(r *rand.Rand) {
			n.servers.master.Freeze()
			time.Sleep(n.some(r, 0.05, 0.7)) // how long it lasts
			n.servers.master.Thaw()
		}},
	}
	if n.durable {
		return append(acts, act{"the clock is slewed within the margin", func(r *rand.Rand) {
			n.slew(r, 8_000, func() { time.Sleep(n.some(r, 0.5, 2)) }) // how long it lasts
		}})
	}
	return append(acts,
		act{"the clock is slewed as fast as chrony does", func(r *rand.Rand) {
			n.slew(r, 80_000, func() {
				for range 4 { // this fault counts as four: while it lasts, a lease may end early at any time
					n.forgetting(true, func() { time.Sleep(n.some(r, 0.1, 0.3)) }) // how long it lasts
				}
			})
		}},
		act{"the clock jumps", func(r *rand.Rand) {
			n.forgetting(true, func() { n.servers.master.Clock().Step(n.some(r, 0.1, 1.5)) })
		}},
		act{"the replica takes over, with another clock", func(r *rand.Rand) {
			n.failOverTo(n.some(r, 0.1, 1))
		}},
		act{"Redis is flushed", func(*rand.Rand) {
			n.forgetting(false, func() { n.redis("FLUSHALL") })
			n.servers.synced() // otherwise a failover could bring back what has been forgotten
		}},
		act{"the replica takes over", func(*rand.Rand) { n.failOver() }},
		act{"the replica takes over, without the last writes", func(r *rand.Rand) {
			n.servers.copying.dropReplies()
			time.Sleep(n.some(r, 0.02, 0.3)) // how old the replica's data are
			n.failOver()
		}})
}

func (n *nemesis) restart() {
	if n.durable {
		n.servers.master.Restart(n.t)
		return
	}
	n.forgetting(false, func() { n.servers.master.Restart(n.t) })
	n.servers.follow() // at once: until the replica has forgotten too, a failover could bring back what was forgotten
}

// slew makes the master's clock run faster or slower by ppm millionths while during runs.
func (n *nemesis) slew(r *rand.Rand, ppm int64, during func()) {
	if r.IntN(2) == 0 {
		ppm = -ppm
	}
	clock := n.servers.master.Clock() // the setting survives a restart
	clock.Slew(ppm)
	defer clock.Slew(0)
	during()
}

func (n *nemesis) failOver() { n.failOverTo(0) }

// failOverTo makes the replica the master. Its clock is ahead of the old master's by d.
func (n *nemesis) failOverTo(d time.Duration) {
	n.servers.leadReplica(d)
	proxies := []*link{n.proxy}
	for _, s := range n.seats {
		proxies = append(proxies, s.link)
	}
	n.forgetting(true, func() { n.servers.failOver(proxies...) })
	n.servers.rejoin()
}

// forgetting does something that makes Redis forget, and records when.
func (n *nemesis) forgetting(partly bool, do func()) {
	from := history.Now()
	do()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.forgets = append(n.forgets, history.Span{From: from, To: history.Now(), Partly: partly})
}

// redis sends a command until it gets a reply. Each of these commands may be executed twice.
func (n *nemesis) redis(command ...string) {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		err := n.admin.Do(ctx, n.admin.B().Arbitrary(command...).Build()).Error()
		cancel()
		if err == nil || n.t.Context().Err() != nil {
			return
		}
		n.note("%v: %v", command, err)
	}
}
