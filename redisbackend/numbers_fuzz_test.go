package redisbackend_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/redisbackend"
)

// edges are the largest numbers that a type, or Lua, can represent, and numbers near them.
var edges = [16]int64{0, 1, -1, 2, 3, 1000, 1<<16 - 1, 1 << 16, 1<<16 + 1, 1<<31 - 1, 1 << 31, 1<<53 - 1, 1 << 53, 1<<53 + 1,
	math.MaxInt64, math.MinInt64}

// A numbered is a program of verbs whose numbers are edges. In the program each verb has a byte for the verb itself, one for
// the session, and one for each number.
type numbered struct{ rest []byte }

func (n *numbered) next() byte {
	if len(n.rest) == 0 {
		return 0
	}
	b := n.rest[0]
	n.rest = n.rest[1:]
	return b
}

func (n *numbered) number() int64           { return edges[n.next()%byte(len(edges))] }
func (n *numbered) duration() time.Duration { return time.Duration(n.number()) }
func (n *numbered) flag() bool              { return n.next()%2 == 1 }

// long returns an edge as a duration. A valid duration is made so long that it does not end during a step, even on a slow
// machine.
func (n *numbered) long() time.Duration {
	d := n.duration()
	if d > 0 {
		d = max(d, time.Hour)
	}
	return d
}

// seen returns a token near the server's clock, or one of the edges.
func (n *numbered) seen(clock int64) backend.Token {
	token := n.number()
	if n.flag() {
		token += clock
	}
	return backend.Token(token)
}

// outcome returns the result of a step, without anything that depends on the time of the run.
func outcome(err error, answer string) string {
	if err != nil {
		return fmt.Sprintf("error, refused %v, unknown %v", backend.Refused(err), backend.OutcomeUnknown(err))
	}
	return answer
}

// A side is one of the two implementations that are compared. It has two sessions of one lock, either both with scripts or both
// without.
type side struct {
	site    *site
	members [2]*member
}

func newSide(s *site, b *redisbackend.Backend, kind string) *side {
	one := &side{site: &site{T: s.T, client: s.client, b: b, name: "lock-" + kind, began: s.began}}
	for i := range one.members {
		one.members[i] = one.site.join(fmt.Sprintf("%s-%d", kind, i))
	}
	return one
}

// verbs is the number of verbs. It is also the number of the step that deletes all of Redis's data.
const verbs = 8

// step runs one verb of the program, and returns its result.
func (s *side) step(p *numbered, clock int64) string {
	verb, m := p.next()%verbs, s.members[p.next()%2]
	ctx := s.site.ctx()
	switch verb {
	case 0, 1:
		req := backend.AcquireRequest{Epoch: uint64(p.number()), Owner: "1", Holds: int(p.number()), Lease: p.long(),
			NotAfter: time.Now().Add(time.Minute), Queue: p.flag(), Barge: p.flag(), Yield: p.flag(), Fixed: p.flag(), KeepTTL: p.flag(),
			Tokens: int(p.number()), Seen: p.seen(clock), Patience: p.long(), GrantTTL: p.long()}
		reply, err := m.remote.Acquire(ctx, req)
		if err == nil && reply.Status == backend.Granted {
			assert.LessOrEqual(s.site, reply.First, reply.Last)
			assert.LessOrEqual(s.site, reply.Last, backend.Token(clock)+backend.Token((367*24*time.Hour).Microseconds()))
		}
		return "acquire " + outcome(err, fmt.Sprint(reply.Status, sizeOf(reply), reply.TTL > 30*time.Minute))
	case 2:
		reply, err := m.remote.Reenter(ctx, backend.ReenterRequest{Epoch: uint64(p.number()), Owner: "1", Op: uint64(p.number()),
			Holds: int(p.number()), Lease: p.long()})
		return "reenter " + outcome(err, fmt.Sprint(reply.Gone, reply.Holds))
	case 3:
		req := backend.ReleaseRequest{Epoch: uint64(p.number()), Used: backend.Token(p.number())}
		if d := p.long(); d != 0 {
			req.Until = time.Now().Add(d)
		}
		result, err := m.remote.Release(ctx, req)
		return "release " + outcome(err, fmt.Sprint(result))
	case 4:
		one := []backend.Renewal{{Remote: m.remote, Epoch: uint64(p.number()), Lease: p.long()}}
		m.conn.Renew(ctx, one)
		return "renew " + outcome(one[0].Err, fmt.Sprint(one[0].Gone))
	case 5:
		req := backend.AwaitRequest{Condition: "c", Epoch: uint64(p.number()), Ticket: uint64(p.number()), Owner: "1",
			Holds: int(p.number()), Seen: p.seen(clock), Patience: p.long(), GrantTTL: p.long()}
		status, err := m.conditions().Await(ctx, req)
		return "await " + outcome(err, fmt.Sprint(status))
	case 6:
		reply, err := m.conditions().Signal(ctx, backend.SignalRequest{Condition: "c", Epoch: uint64(p.number()), Op: uint64(p.number()), All: p.flag()})
		return "signal " + outcome(err, fmt.Sprint(reply.Gone, reply.More, reply.Tickets))
	}
	req := backend.ResumeRequest{Epoch: uint64(p.number()), Owner: "1", Lease: p.long(), Seen: p.seen(clock), NotAfter: time.Now().Add(time.Minute), Fixed: p.flag()}
	reply, err := m.remote.(backend.Resumer).Resume(ctx, req)
	return "resume " + outcome(err, fmt.Sprint(reply.Status, reply.Holds, reply.TTL > 30*time.Minute))
}

// sizeOf returns the size of the block in a reply, as far as the size does not depend on the clock.
func sizeOf(reply backend.AcquireReply) string {
	if reply.Status != backend.Granted {
		return "none"
	}
	return fmt.Sprint(reply.First == reply.Last)
}

// state returns what Redis stores for the lock, except times and tokens.
func (s *side) state() string {
	st := s.members[0].inspect()
	session := func(id string) string {
		if id == "" {
			return ""
		}
		return id[len(id)-1:]
	}
	var waiting []string
	for _, id := range st.Waiting {
		waiting = append(waiting, session(id))
	}
	if st.Locked {
		assert.Positive(s.site, st.TTL, "a hold has a lease, which has not ended")
		assert.Less(s.site, st.TTL, 31*365*24*time.Hour)
	}
	kept, err := s.site.do("TTL", s.site.side("t")).ToInt64()
	require.NoError(s.site, err)
	assert.NotEqual(s.site, int64(-1), kept, "the record expires")
	assert.Less(s.site, kept, int64(100*365*86400))
	return fmt.Sprint(st.Locked, session(st.Session), st.Owner, st.Holds, st.Epoch, waiting)
}

// FuzzNumbers compares the scripts with package protocol for the largest and smallest numbers: each step of a program
// has the same result and leaves the lock in the same state.
func FuzzNumbers(f *testing.F) {
	for i, seed := range edgePrograms() {
		if i%testsize.Of(1, 16) == 0 { // TestNumbersOnARealRedis runs more of them
			f.Add(seed)
		}
	}
	f.Fuzz(func(t *testing.T, program []byte) {
		if len(program) > 600 {
			t.Skip()
		}
		compare(embedded(t), program)
	})
}

// TestNumbersOnARealRedis runs programs of FuzzNumbers on a real Redis, whose Lua differs from the embedded one's. Only at full
// size does it run all of them.
func TestNumbersOnARealRedis(t *testing.T) {
	t.Parallel()
	server := redisserver.Start(t)
	some := testsize.Of(1, 3)
	for i, program := range edgePrograms() {
		if i%some != 0 {
			continue
		}
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			client := connect(t, server.Addr())
			b, err := redisbackend.New(client)
			require.NoError(t, err)
			s := &site{T: t, client: client, b: b, name: "lock", began: time.Now()}
			s.run("FLUSHALL")
			compare(s, program)
		})
	}
}

// compare runs a program on both sides and compares each step.
func compare(s *site, program []byte) {
	scripted, bare := newSide(s, s.b, "a"), newSide(s, s.withoutScripts().b, "b")
	p := numbered{program}
	for i := 0; len(p.rest) > 0; i++ {
		if p.rest[0] == verbs {
			p.next()
			s.run("FLUSHALL")
			continue
		}
		q, clock := p, s.clock()
		got, want := scripted.step(&p, clock), bare.step(&q, clock)
		require.Equal(s, want, got, "step %d", i)
		require.Equal(s, bare.state(), scripted.state(), "step %d: %s", i, got)
	}
}

// edgePrograms returns programs for every verb, both with a hold and without one. In each program one number of the verb is an
// edge, and the other numbers are ordinary.
func edgePrograms() (programs [][]byte) {
	// The bytes are indices of edges: 1 stands for 1, 3 for 2, and 5 for 1000 (an hour, if it is a time).
	take := []byte{0, 0, 1, 1, 5, 0, 0, 0, 0, 0, 1, 0, 0, 5, 5}
	ordinary := [][]byte{
		{0, 0, 3, 1, 5, 1, 0, 0, 0, 0, 1, 0, 0, 5, 5}, // acquire, queueing
		{0, 1, 3, 1, 5, 1, 0, 0, 0, 0, 1, 0, 1, 5, 5}, // the other session's attempt, which has seen a token near the clock
		{2, 0, 1, 1, 3, 5},                            // reenter
		{3, 0, 1, 0, 5},                               // release
		{4, 0, 1, 5},                                  // renew
		{5, 0, 1, 3, 1, 0, 0, 5, 5},                   // await
		{6, 0, 1, 1, 1},                               // signal
		{7, 1, 3, 5, 0, 0, 0},                         // resume
	}
	for _, verb := range ordinary {
		var inARow []byte
		for at := 2; at < len(verb); at++ {
			var program []byte
			for edge := range byte(len(edges)) {
				one := slices.Clone(verb)
				one[at] = edge
				program = slices.Concat(program, []byte{verbs}, take, one)
				inARow = append(inARow, one...)
			}
			programs = append(programs, program)
		}
		programs = append(programs, inARow[:min(len(inARow), 600)])
	}
	return programs
}
