package redisbackend_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/redisbackend"
	keys "github.com/relock-go/relock/redisbackend/internal/wire"
)

// Garbage is a value that another program, or an operator, has written to a key that a lock uses. With garbage in its keys,
// each verb either returns ErrWrongKind and changes nothing, or works with the parts that it can read.
//
// A garbage site has a lock with a holder, waiters, tickets and a note, and a semaphore with a holder and a waiter.
type garbageSite struct {
	*site
	scripts     bool
	verbs       map[string]func() error
	prior       backend.Prior
	under       backend.Token
	one, two    *member // one has the lock and a permit; two waits for both
	lock        keys.ConditionKeys
	note, units string // the keys of the lock's note and of the semaphore's record
}

const garbageCondition = "c"

func newGarbageSite(s *site, b *redisbackend.Backend, scripts bool) *garbageSite {
	g := &garbageSite{site: s, scripts: scripts}
	g.one, g.two = g.deaf(b, "one"), g.deaf(b, "two")
	lock, shared := must(keys.KeysOf("", s.name)), must(keys.KeysOf("", "sem"))
	g.lock, g.note, g.units = lock.Condition("", garbageCondition), lock.Note(""), shared[1]
	g.verbs = g.allVerbs()
	return g
}

// deaf opens a session that ignores the messages that are sent to it.
func (g *garbageSite) deaf(b *redisbackend.Backend, id string) *member {
	conn, err := b.Connect(g.ctx(), id, deaf{})
	require.NoError(g, err)
	g.Cleanup(func() { assert.NoError(g, conn.Close()) })
	m := &member{site: g.site, id: id, conn: conn}
	m.remote = m.bind(g.name)
	return m
}

type deaf struct{}

func (deaf) Granted(backend.Grant)          {}
func (deaf) Signalled(string, uint64, bool) {}
func (deaf) Taken(string, uint64)           {}
func (deaf) Wanted(string, uint64)          {}
func (deaf) Reconnected()                   {}

// reset makes a new lock and a new semaphore.
func (g *garbageSite) reset() {
	g.Helper()
	g.run("FLUSHALL")
	one, two := g.one, g.two
	for ticket := range uint64(2) {
		two.take(1 + 2*ticket)
		g.await(two, 1+2*ticket, 2+2*ticket)
	}
	two.take(5)
	_, err := two.conditions().Signal(g.ctx(), backend.SignalRequest{Condition: garbageCondition, Epoch: 5, Op: 1})
	require.NoError(g, err)
	require.Equal(g, backend.Released, two.release(5))
	one.take(1)
	_, err = one.remote.(backend.Noter).Note(g.ctx(), backend.NoteRequest{Epoch: 1, Text: "a note"})
	require.NoError(g, err)
	require.Equal(g, backend.Waiting, two.acquire(9, queue).Status)
	g.prior = one.acquire(1).Prior
	require.Equal(g, g.scripts, g.prior.Epoch == 1, "the holder remembers the lock, so that the short scripts are used")
	reply, err := g.share(one, 1, 0, 2)
	require.NoError(g, err)
	require.Equal(g, 2, reply.Units)
	g.under = reply.First
	reply, err = g.share(two, 1, 0, 1)
	require.NoError(g, err)
	require.True(g, reply.Placed)
}

func (g *garbageSite) await(m *member, epoch, ticket uint64) {
	g.Helper()
	_, err := m.conditions().Await(g.ctx(), awaitRequest(epoch, ticket))
	require.NoError(g, err)
}

func awaitRequest(epoch, ticket uint64) backend.AwaitRequest {
	return backend.AwaitRequest{Condition: garbageCondition, Epoch: epoch, Ticket: ticket, Owner: "1", Holds: 1, Patience: patience, GrantTTL: grantTTL}
}

func (g *garbageSite) share(m *member, epoch uint64, keep, want int) (backend.ShareReply, error) {
	late := time.Now().Add(limit)
	req := backend.ShareRequest{Kind: backend.Permits, Epoch: epoch, Keep: keep, Want: want, Limit: 2, Tokens: 1, Under: g.under, Lease: lease,
		GrantTTL: grantTTL, Patience: patience, NotAfter: late, Memory: late}
	if want > keep {
		req.Least = want
	}
	if keep == 0 {
		req.Under = 0
	}
	return m.bind("sem").(backend.Sharer).Share(g.ctx(), req)
}

// allVerbs returns the verbs of both kinds, sent by the session that holds the lock or the permit, and by the session that
// waits.
func (g *garbageSite) allVerbs() map[string]func() error {
	one, two := g.one, g.two
	renew := func(name string, under func() backend.Token) func() error {
		return func() error {
			r := []backend.Renewal{{Remote: one.bind(name), Epoch: 1, Lease: lease, Under: under()}}
			one.conn.Renew(g.ctx(), r)
			return r[0].Err
		}
	}
	acquire := func(m *member, epoch uint64, change ...func(*backend.AcquireRequest)) func() error {
		return func() error {
			_, err := m.remote.Acquire(g.ctx(), request(epoch, change...))
			return err
		}
	}
	signal := func(all bool) func() error {
		return func() error {
			_, err := one.conditions().Signal(g.ctx(), backend.SignalRequest{Condition: garbageCondition, Epoch: 1, Op: 2, All: all})
			return err
		}
	}
	remembered := func(r *backend.AcquireRequest) { r.Prior = g.prior }
	release := func(m *member, req backend.ReleaseRequest, remembers bool) func() error {
		return func() error {
			if remembers {
				req.Prior = g.prior
			}
			_, err := m.remote.Release(g.ctx(), req)
			return err
		}
	}
	share := func(m *member, epoch uint64, keep, want int) func() error {
		return func() error {
			_, err := g.share(m, epoch, keep, want)
			return err
		}
	}
	return map[string]func() error{
		"acquire: a copy":             acquire(one, 1),
		"acquire: the next":           acquire(one, 5),
		"acquire: the next remembers": acquire(one, 5, remembered),
		"acquire: yield":              acquire(one, 5, yield),
		"acquire: yield remembers":    acquire(one, 5, yield, remembered),
		"acquire: wait":               acquire(two, 10, queue),
		"acquire: try":                acquire(two, 10),
		"reenter": func() error {
			_, err := one.remote.Reenter(g.ctx(), backend.ReenterRequest{Epoch: 1, Owner: "1", Op: 2, Holds: 2, Lease: lease})
			return err
		},
		"release":           release(one, backend.ReleaseRequest{Epoch: 1}, false),
		"release remembers": release(one, backend.ReleaseRequest{Epoch: 1}, true),
		"release in doubt":  release(one, backend.ReleaseRequest{Epoch: 1, Until: time.Now().Add(time.Hour)}, false),
		"release: leave":    release(two, backend.ReleaseRequest{Epoch: 9}, false),
		"renew":             renew(g.name, func() backend.Token { return 0 }),
		"resume": func() error {
			_, err := two.remote.(backend.Resumer).Resume(g.ctx(), backend.ResumeRequest{Epoch: 10, Owner: "1", Lease: lease, NotAfter: time.Now().Add(limit)})
			return err
		},
		"watch": func() error {
			_, err := one.remote.(backend.Watcher).Watch(g.ctx(), 1)
			return err
		},
		"note": func() error {
			_, err := one.remote.(backend.Noter).Note(g.ctx(), backend.NoteRequest{Epoch: 1, Text: "another"})
			return err
		},
		"inspect": func() error {
			_, err := one.remote.Inspect(g.ctx())
			return err
		},
		"inspect all": func() error {
			i := []backend.Inspection{{Remote: one.remote}}
			one.conn.(backend.Inspector).InspectAll(g.ctx(), i)
			return i[0].Err
		},
		"force": func() error {
			_, err := one.remote.ForceUnlock(g.ctx(), time.Now().Add(time.Minute))
			return err
		},
		"await": func() error {
			_, err := one.conditions().Await(g.ctx(), awaitRequest(1, 7))
			return err
		},
		"signal":     signal(false),
		"signal all": signal(true),
		"withdraw": func() error {
			_, err := two.conditions().Withdraw(g.ctx(), garbageCondition, 4)
			return err
		},
		"beat": func() error {
			_, err := two.conditions().Beat(g.ctx(), garbageCondition, []uint64{2, 4}, []uint64{6})
			return err
		},
		"share: a copy":    share(one, 1, 0, 2),
		"share: give back": share(one, 2, 1, 1),
		"share: wait":      share(two, 1, 0, 1),
		"share: leave":     share(two, 2, 0, 0),
		"shared renew":     renew("sem", func() backend.Token { return g.under }),
		"shared note": func() error {
			_, err := one.bind("sem").(backend.ShareNoter).NoteShared(g.ctx(), backend.NoteRequest{Epoch: 1, Text: "another"})
			return err
		},
		"share: inspect": func() error {
			_, err := one.bind("sem").(backend.Sharer).InspectShared(g.ctx())
			return err
		},
		"share: force": func() error {
			_, err := one.bind("sem").(backend.Sharer).ForceShared(g.ctx(), backend.Permits, time.Now().Add(time.Minute))
			return err
		},
	}
}

// A litter is one piece of garbage: the key where it is, and the command that writes it.
type litter struct {
	key     string
	command []string
	refused string // verbs whose names begin with one of these words must return an error; "" for none
}

const (
	lockVerbs   = "acquire reenter release resume watch note inspect force await signal beat"
	sharedVerbs = "share"
)

// litters returns values of each Redis type for each key, and texts that are almost valid.
func (g *garbageSite) litters() (all []litter) {
	long := strings.Repeat("9", 40)
	required := map[string]string{g.lock[0]: lockVerbs, g.lock[1]: lockVerbs, g.lock[2]: "", g.lock[3]: "", g.lock[4]: "", g.lock[5]: "", g.lock[6]: "",
		g.note: "", "sem": "", g.units: sharedVerbs}
	for _, key := range slices.Sorted(maps.Keys(required)) {
		refused := required[key]
		for _, words := range [][]string{{"SET", key, "x"}, {"SET", key, ""}, {"RPUSH", key, "x"}, {"SADD", key, "x"}, {"ZADD", key, "1", "x"},
			{"XADD", key, "*", "x", "y"}} {
			all = append(all, litter{key, words, refused})
		}
		if key == g.lock[0] {
			refused = "inspect force" // other sessions find that the key does not have a lock
		}
		all = append(all, litter{key, []string{"HSET", key, "x", "y"}, refused})
	}
	records := []string{"1", "1 1 one", "1 1 one 1 0 h", "1 1 one 1 0 h x", "a 1 one 1 0 h 300", "-1 1 one 1 0 h 300", "1 1 one x 0 h 300",
		"1.5 1.5 one 1 0 h 300", "2 1 one 1 0 h 300", "1 1 one 1 0 h " + long, "1 1 one " + long + " 0 h 300", "1 1 one 1 0 hh 300", "1\x001 one 1 0 h 300"}
	for _, text := range records {
		all = append(all, litter{g.lock[1], []string{"SET", g.lock[1], text}, lockVerbs})
	}
	for _, count := range []string{"", "x", "-1", "0", "1.5", long} {
		all = append(all, litter{g.lock[0], []string{"HSET", g.lock[0], "one:1", count}, "inspect force resume"},
			litter{g.lock[0], []string{"HSET", g.lock[0], "java:7", count}, "inspect force"})
	}
	places := []string{"", "x", "9", "9 x 1 1 1 1 1 1", "9 9999999999999999 40000 1 1 0 x 1", "9 9999999999999999 40000", "x 9999999999999999 40000 1 1 0 300 1",
		"9 9999999999999999 " + long + " 1 1 0 300 1", "9 9999999999999999 40000 " + long + " 1 0 300 1", "9 9999999999999999 40000 1 1 0 " + long + " 1"}
	for _, text := range places {
		all = append(all, litter{g.lock[3], []string{"HSET", g.lock[3], "two", text}, ""})
	}
	for _, text := range []string{"", "x", "9999999999999999", "9999999999999999 x", "9999999999999999 60000", "9999999999999999 60000 40000 1 1 0 x 1"} {
		all = append(all, litter{g.lock[6], []string{"HSET", g.lock[6], "two:2", text, "two:4", text, "x", text}, ""})
	}
	for _, key := range g.lock[4:6] {
		all = append(all, litter{key, []string{"ZADD", key, "inf", "two:x", "-inf", "", "0", "two"}, ""})
	}
	all = append(all, litter{g.lock[2], []string{"RPUSH", g.lock[2], "", "unknown", "two"}, ""}, litter{g.note, []string{"SET", g.note, "x y"}, ""})
	entry := "1 1 9999999999999999 9999999999999999 2 2 2 0 0 0 0 0 0 0 0 -1 0 0"
	summary := "p 2 1 1 1 9007199254740991 1 0 2147483647"
	for _, fields := range [][]string{{"=", "x"}, {"=", ""}, {"=", "z" + summary[1:]}, {"=", "p"}, {"=", "p 2"}, {"=", summary + " 0"}, {"=", strings.Replace(summary, "2", "-2", 1)},
		{"one", entry}} {
		all = append(all, litter{g.units, append([]string{"HSET", g.units}, fields...), sharedVerbs})
	}
	for _, text := range []string{"", "x", "x y", "0"} {
		all = append(all, litter{g.units, []string{"HSET", g.units, "=", summary, "one", entry, "#none", text}, ""})
	}
	for _, text := range []string{"", "x", "1 2 3", entry + " 0", strings.Replace(entry, "1", "x", 1)} { // other sessions are served
		all = append(all, litter{g.units, []string{"HSET", g.units, "=", summary, "one", text}, ""})
	}
	return all
}

// contents returns what the server has in each key, without expiries.
func (g *garbageSite) contents() map[string]string {
	all := map[string]string{}
	for _, key := range must(g.do("KEYS", "*").AsStrSlice()) {
		switch kind := must(g.do("TYPE", key).ToString()); kind {
		case "string":
			all[key] = must(g.do("GET", key).ToString())
		case "hash":
			all[key] = fmt.Sprint(must(g.do("HGETALL", key).AsStrMap()))
		case "list":
			all[key] = fmt.Sprint(must(g.do("LRANGE", key, "0", "-1").AsStrSlice()))
		case "zset":
			all[key] = fmt.Sprint(must(g.do("ZRANGE", key, "0", "-1", "WITHSCORES").AsZScores()))
		default:
			all[key] = kind
		}
	}
	return all
}

// rawWords are words of error messages of Lua and of Redis's commands. Such messages explain nothing to a user.
var rawWords = []string{"attempt to", "bad argument", "nil value", "ERR ", "invalid", "expected", "out of range", "not an integer"}

// complain returns what is wrong with a verb's error after the verb has met garbage.
func complain(err error) string {
	switch text := err.Error(); {
	case !errors.Is(err, backend.ErrWrongKind):
		return "the error is not ErrWrongKind"
	case !backend.Refused(err):
		return "the error is not a refusal"
	case slices.ContainsFunc(rawWords, func(words string) bool { return strings.Contains(text, words) }):
		return "the error has words of Lua or of Redis"
	}
	return ""
}

// Whatever the keys of a lock or of a shared name contain, each verb either works, or changes nothing and returns a
// clear error.
func TestGarbageIsRefusedOrHarmless(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		for how, b := range map[string]*redisbackend.Backend{"scripts": s.b, "transactions": s.withoutScripts().b} {
			t.Run(how, func(t *testing.T) {
				site := *s
				site.T = t
				meetGarbage(newGarbageSite(&site, b, how == "scripts"))
			})
		}
	})
}

func meetGarbage(g *garbageSite) {
	verbs := slices.Sorted(maps.Keys(g.verbs))
	litters := g.litters()
	some := testsize.Of(1, 80)
	for i := rand.IntN(some); i < len(litters) && !g.Failed(); i += some {
		l, fresh := litters[i], false
		for _, verb := range verbs {
			if !fresh {
				g.reset()
				g.run("DEL", l.key)
				g.run(l.command...)
				g.run("PEXPIRE", l.key, text(lease.Milliseconds()))
			}
			before := g.contents()
			err := g.verbs[verb]()
			after := g.contents()
			fresh = maps.Equal(before, after)
			word, _, _ := strings.Cut(strings.ReplaceAll(verb, ":", ""), " ")
			switch {
			case err == nil:
				assert.NotContains(g, strings.Fields(l.refused), word, "%s with %q must be refused", verb, l.command)
			case complain(err) != "":
				assert.Fail(g, complain(err), "%s with %q: %v", verb, l.command, err)
			default:
				assert.Equal(g, before, after, "%s with %q has changed something: %v", verb, l.command, err)
			}
		}
	}
}
