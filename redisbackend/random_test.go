package redisbackend_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/redisbackend/redistest"
)

// TestScriptsAgreeWithTheModelAtRandom lets three sessions send random commands for a lock, a read-write lock and a semaphore,
// with pauses in which leases and places end. Each command goes to the scripts and, unchanged, to package protocol.
func TestScriptsAgreeWithTheModelAtRandom(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testsize.Of(4_000, 20)) {
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &rivals{T: t, random: rand.New(rand.NewPCG(seed, 1))}
				r.open(redistest.InBubble(t).Backend(), memory.New())
				r.play()
			})
		})
		if !ok {
			return
		}
	}
}

// rivals has two servers, each with the same three sessions.
type rivals struct {
	*testing.T
	random *rand.Rand
	twins  [3]twin
	lines  []string
}

// A twin is a session that is open at both servers. The two servers give out different tokens.
type twin struct {
	id     string
	sides  [2]twinSide
	last   backend.AcquireRequest // of the lock
	sent   time.Time
	queued time.Time // when the session last took or kept its place
	op     uint64
	shares map[string]*backend.ShareRequest // the last request for each name
}

type twinSide struct {
	remotes map[string]backend.Remote
	prior   backend.Prior
	under   map[string]backend.Token
}

// names has the names, and how many units each has. A lock has 0.
var names = map[string]int{"lock": 0, "rw": backend.AllUnits, "sem": 3}

func (r *rivals) open(servers ...backend.Backend) {
	for i := range r.twins {
		x := &r.twins[i]
		x.id, x.shares = string(rune('a'+i)), map[string]*backend.ShareRequest{"rw": {}, "sem": {}}
		for side, b := range servers {
			conn, err := b.Connect(r.Context(), x.id, newMember())
			require.NoError(r, err)
			r.Cleanup(func() { _ = conn.Close() })
			x.sides[side] = twinSide{remotes: map[string]backend.Remote{}, under: map[string]backend.Token{}}
			for name := range names {
				x.sides[side].remotes[name], err = conn.Bind(name)
				require.NoError(r, err)
			}
		}
	}
}

func (r *rivals) play() {
	defer func() {
		if r.Failed() {
			r.Log("\n" + strings.Join(r.lines, "\n"))
		}
	}()
	for range 80 {
		if pause := []time.Duration{0, 0, 0, time.Second / 3, 3 * time.Second}[r.random.IntN(5)]; pause > 0 {
			time.Sleep(pause + 37*time.Microsecond) // so that no command comes at the very end of a lease
			r.lines = append(r.lines, fmt.Sprint("pause ", pause))
		}
		x := &r.twins[r.random.IntN(len(r.twins))]
		switch r.random.IntN(12) {
		case 0, 1, 2:
			r.attempt(x)
		case 3:
			r.again(x)
		case 4, 5:
			r.release(x)
		case 6:
			r.reenter(x)
		case 7:
			r.inspect(x)
		default:
			name := []string{"rw", "sem"}[r.random.IntN(2)]
			r.share(x, name)
		}
	}
}

// both sends a command to both servers, and requires that they reply the same.
func (r *rivals) both(what string, send func(side int) string) {
	r.Helper()
	scripts, model := send(0), send(1)
	r.lines = append(r.lines, what+" → "+scripts)
	require.Equal(r, model, scripts, "%s: package protocol, and the scripts", what)
}

func (r *rivals) chance(n int) bool { return r.random.IntN(n) == 0 }

func (r *rivals) attempt(x *twin) {
	if !x.queued.IsZero() && time.Since(x.queued) > 2*time.Second { // the place has ended, and could come back
		r.release(x)
		x.queued = time.Time{}
	}
	x.last = request(x.last.Epoch+1, owned(fmt.Sprint(r.random.IntN(2))))
	x.last.Lease, x.last.GrantTTL, x.last.Patience = 4*time.Second, 2*time.Second, 2*time.Second
	x.last.Queue, x.last.Barge, x.last.KeepTTL = r.chance(2), r.chance(4), r.chance(4)
	x.last.Yield = x.last.Queue && r.chance(4)
	x.sent, x.op = time.Now(), 0
	r.acquire(x, r.chance(2))
}

// again sends a copy of the last attempt, if the copy still arrives in time.
func (r *rivals) again(x *twin) {
	if x.last.Epoch > 0 && time.Since(x.sent) < 2*time.Second {
		r.acquire(x, false)
	}
}

func (r *rivals) acquire(x *twin, remembers bool) {
	if x.last.Queue {
		x.queued = time.Now()
	}
	r.both(fmt.Sprintf("%s acquire %d queue=%t barge=%t yield=%t keep=%t remembers=%t", x.id, x.last.Epoch, x.last.Queue, x.last.Barge,
		x.last.Yield, x.last.KeepTTL, remembers), func(side int) string {
		s, req := &x.sides[side], x.last
		if req.NotAfter = x.sent.Add(2 * time.Second); remembers {
			req.Prior = s.prior
		}
		reply, err := s.remotes["lock"].Acquire(r.Context(), req)
		s.prior = reply.Prior
		return fmt.Sprint(reply.Status, reply.TTL.Truncate(time.Millisecond), reply.Last-reply.First, err)
	})
}

func (r *rivals) release(x *twin) {
	doubt := r.chance(3)
	r.both(fmt.Sprintf("%s release %d doubt=%t", x.id, x.last.Epoch, doubt), func(side int) string {
		s, req := &x.sides[side], backend.ReleaseRequest{Epoch: x.last.Epoch}
		if doubt {
			req.Until = time.Now().Add(2 * time.Second)
		} else if s.prior.Epoch == req.Epoch {
			req.Prior = s.prior
		}
		result, err := s.remotes["lock"].Release(r.Context(), req)
		if s.prior.Freed = result == backend.Freed; s.prior.Freed {
			result = backend.Released // Freed is only a hint that the session may remember the lock
		}
		if result == backend.Withdrawn && time.Since(x.queued) > 2*time.Second {
			result = backend.Nothing // a place that has ended may be removed at any time
		}
		return fmt.Sprint(result, err)
	})
}

func (r *rivals) reenter(x *twin) {
	x.op++
	holds := 1 + r.random.IntN(3)
	r.both(fmt.Sprintf("%s reenter %d op=%d holds=%d", x.id, x.last.Epoch, x.op, holds), func(side int) string {
		reply, err := x.sides[side].remotes["lock"].Reenter(r.Context(), backend.ReenterRequest{Epoch: x.last.Epoch, Owner: x.last.Owner,
			Op: x.op, Holds: holds, Lease: 4 * time.Second})
		x.sides[side].prior = backend.Prior{}
		return fmt.Sprint(reply.Holds, reply.Gone, err)
	})
}

func (r *rivals) inspect(x *twin) {
	r.both("inspect", func(side int) string {
		st, err := x.sides[side].remotes["lock"].Inspect(r.Context())
		return fmt.Sprint(st.Session, st.Owner, st.Epoch, st.Holds, st.TTL.Truncate(time.Millisecond), st.Waiting, err)
	})
}

// share sends a new request, or a copy of the last one.
func (r *rivals) share(x *twin, name string) {
	last, total := x.shares[name], names[name]
	if time.Now().After(last.NotAfter) || !r.chance(3) { // after that time the servers may have forgotten the session
		*last = sharing(last.Epoch+1, 0, 0)
		last.Limit, last.Lease, last.GrantTTL, last.Patience = total, 4*time.Second, 2*time.Second, 2*time.Second
		if name == "sem" {
			last.Kind = backend.Permits
			last.Keep, last.Want = r.random.IntN(2), 1+r.random.IntN(total)
			last.Least = 1 + r.random.IntN(last.Want)
		} else {
			last.Keep, last.Want = r.random.IntN(2), []int{1, total}[r.random.IntN(2)]
			last.Least = last.Want
		}
		if r.chance(4) {
			last.Want, last.Least = last.Keep, last.Keep
		}
		last.Try = last.Want > last.Keep && r.chance(4)
	}
	last.NotAfter = time.Now().Add(2 * time.Second)
	last.Memory = last.NotAfter
	r.both(fmt.Sprintf("%s share %s %d keep=%d want=%d least=%d try=%t", x.id, name, last.Epoch, last.Keep, last.Want, last.Least, last.Try),
		func(side int) string {
			s, req := &x.sides[side], *last
			req.Under = s.under[name]
			reply, err := s.remotes[name].(backend.Sharer).Share(r.Context(), req)
			if last.Keep == 0 {
				s.under[name] = reply.First
			}
			return fmt.Sprint(reply.Status, reply.Epoch, reply.Units, reply.Placed, reply.May, reply.Share, err)
		})
}
