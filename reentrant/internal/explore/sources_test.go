package explore

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend"
)

// sources are the scripts as the backend sends them, and the keys that it names, as recorded by a tap.
type sources struct {
	texts map[verb]string
	keys  [keyCount]string
	sent  map[verb][]string // KEYS, then ARGV, of the latest script
}

// A tap is a server that records what a backend sends to it.
type tap struct {
	mu    sync.Mutex
	texts map[string]string // the scripts that were sent, by their hashes
	sha   string            // of the first script since take
	sent  []string          // its KEYS, then ARGV
}

func (p *tap) hear(_ *server.Peer, cmd string, args ...string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch cmd {
	case "SCRIPT":
		p.texts[hash(args[1])] = args[1]
	case "EVAL":
		p.texts[hash(args[0])] = args[0]
		p.first(hash(args[0]), args)
	case "EVALSHA":
		p.first(args[0], args)
	}
	return false
}

func (p *tap) first(sha string, args []string) {
	if p.sha == "" {
		p.sha, p.sent = sha, slices.Clone(args[2:])
	}
}

func hash(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

func (p *tap) take() (text string, sent []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	text, sent = p.texts[p.sha], p.sent
	p.sha, p.sent = "", nil
	return text, sent
}

// deaf is a session's sink that ignores all messages.
type deaf struct{ backend.Sink }

func (deaf) Reconnected() {}

// overheard makes the backend send every script once, with the calls of the model, and records what it sends.
func overheard(t *testing.T) *sources {
	t.Helper()
	redis, p := miniredis.RunT(t), &tap{texts: map[string]string{}}
	redis.Server().SetPreHook(p.hear)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{redis.Addr()}, DisableCache: true, ForceSingleClient: true})
	require.NoError(t, err)
	defer client.Close()
	backend, err := redisbackend.New(client)
	require.NoError(t, err)
	conn, err := backend.Connect(t.Context(), "a", deaf{})
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	lock, err := conn.Bind(lockName)
	require.NoError(t, err)
	p.take()
	s := &sources{texts: map[verb]string{}, sent: map[verb][]string{}}
	for v, send := range samples(t.Context(), conn, lock) {
		send()
		s.texts[v], s.sent[v] = p.take()
	}
	copy(s.keys[:], s.sent[verbAwait])
	return s
}

// sampled lists calls of every verb, which samples makes with the backend.
var sampled = call{session: 0, owner: 2, epoch: 3, flags: queueUp | yield, holds: 4, op: 5, tokens: 6, used: 7, seen: 8, ticket: 9, all: true,
	memo: memo{epoch: 2, owner: 1, op: 3, token: 11, note: "300 b:1:2"}}

// samples calls the verbs of the backend with the requests of sampled.
func samples(ctx context.Context, conn backend.Conn, lock backend.Remote) map[verb]func() {
	s, sec := sampled, func(t tick) time.Duration { return time.Duration(t) * second }
	seen := backend.Token(epoch + s.seen64())
	used := backend.Token(epoch + int64(s.used))
	return map[verb]func(){
		verbAcquire: func() {
			_, _ = lock.Acquire(ctx, backend.AcquireRequest{Epoch: uint64(s.epoch), Owner: "2", Holds: int(s.holds), Lease: sec(lease),
				NotAfter: time.Now().Add(second), Queue: true, Yield: true, Tokens: int(s.tokens), Seen: seen,
				Patience: sec(patience), GrantTTL: sec(grantTTL)})
		},
		verbReenter: func() {
			_, _ = lock.Reenter(ctx, backend.ReenterRequest{Epoch: uint64(s.epoch), Owner: "2", Op: uint64(s.op), Holds: int(s.holds), Lease: sec(lease)})
		},
		verbRelease: func() { _, _ = lock.Release(ctx, backend.ReleaseRequest{Epoch: uint64(s.epoch), Used: used}) },
		verbRenew: func() {
			conn.Renew(ctx, []backend.Renewal{{Remote: lock, Epoch: uint64(s.epoch), Lease: sec(lease)}})
		},
		verbAwait: func() {
			_, _ = lock.(backend.Conditions).Await(ctx, backend.AwaitRequest{Condition: condName, Epoch: uint64(s.epoch), Ticket: uint64(s.ticket), Owner: "2",
				Holds: int(s.holds), Seen: seen, Patience: sec(patience), GrantTTL: sec(grantTTL)})
		},
		verbSignal: func() {
			_, _ = lock.(backend.Conditions).Signal(ctx, backend.SignalRequest{Condition: condName, Epoch: uint64(s.epoch), Op: uint64(s.op), All: s.all})
		},
		verbWithdraw: func() { _, _ = lock.(backend.Conditions).Withdraw(ctx, condName, uint64(s.ticket)) },
		verbPass: func() {
			_, _ = lock.Acquire(ctx, backend.AcquireRequest{Epoch: uint64(s.epoch), Owner: "2", Holds: int(s.holds), Lease: sec(lease), GrantTTL: sec(grantTTL),
				NotAfter: time.Now().Add(time.Minute), Tokens: 1, Seen: seen, Prior: s.memo.prior()})
		},
		verbTake: func() {
			p := s.memo.prior()
			p.Freed = true
			_, _ = lock.Acquire(ctx, backend.AcquireRequest{Epoch: uint64(s.epoch), Owner: "2", Holds: int(s.holds), Lease: sec(lease), GrantTTL: sec(grantTTL),
				NotAfter: time.Now().Add(time.Minute), Tokens: 1, Seen: seen, Prior: p})
		},
		verbYield: func() {
			_, _ = lock.Acquire(ctx, backend.AcquireRequest{Epoch: uint64(s.epoch), Owner: "2", Holds: int(s.holds), Lease: sec(lease), GrantTTL: sec(grantTTL),
				Patience: sec(patience), NotAfter: time.Now().Add(time.Minute), Queue: true, Yield: true, Tokens: 1, Seen: seen, Prior: s.memo.prior()})
		},
		verbFree: func() {
			_, _ = lock.Release(ctx, backend.ReleaseRequest{Epoch: uint64(s.memo.epoch), Prior: s.memo.prior()})
		},
		verbResume: func() {
			_, _ = lock.(backend.Resumer).Resume(ctx, backend.ResumeRequest{Epoch: uint64(s.epoch), Owner: "2", Lease: sec(lease), NotAfter: time.Now().Add(time.Minute), Seen: seen})
		},
		verbBeat: func() { _, _ = lock.(backend.Conditions).Beat(ctx, condName, []uint64{uint64(s.ticket)}, nil) },
	}
}

// prior returns what the session passes to the backend as its memory of the lock.
func (m memo) prior() backend.Prior {
	return backend.Prior{Epoch: uint64(m.epoch), Owner: ownerName(m.owner), Op: uint64(m.op), Token: backend.Token(epoch + int64(m.token)),
		Pushed: m.pushed, Freed: m.freed, Note: m.note}
}

func (c call) seen64() int64 { return int64(c.seen) }

// If the model sent other arguments than the backend, it would explore another protocol.
func TestArgumentsAreTheBackends(t *testing.T) {
	s := overheard(t)
	for v := verbAcquire; v < verbCount; v++ {
		c := sampled
		c.verb = v
		c.all = v != verbBeat
		if v.lean() {
			c.flags = queueUp
		}
		keys, args := c.arguments(s.keys)
		got := s.sent[v]
		want := slices.Concat(keys, args)
		if v == verbAcquire {
			require.Greater(t, len(got), 9)
			got[4+5], want[4+5] = "", "" // the time after which it is refused
		}
		if v == verbPass || v == verbTake {
			require.Len(t, got, len(want))
			got[len(got)-2], want[len(got)-2] = "", "" // the time after which it is refused
		}
		if v == verbResume {
			require.Len(t, got, len(want))
			got[5+4], want[5+4] = "", ""
		}
		if v == verbYield {
			require.Len(t, got, len(want))
			got[4+7], want[4+7] = "", ""
		}
		assert.Equal(t, want, got, "%v", v)
		assert.NotEmpty(t, s.texts[v], "%v", v)
	}
}
