package redisbackend_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/redisbackend"
	lua "github.com/relock-go/relock/redisbackend/internal/wire"
	"github.com/relock-go/relock/redisbackend/redistest"
)

// If a command of a script fails, Redis keeps what the script has done before. So the tests stop each script after each of its
// commands, in each of the states below. After that all sessions, including the sender of the script, act as sessions do.

// A stopper is a client that can stop the next run of a script half-way.
type stopper struct {
	rueidis.Client
	sha, text string // sha and text are those of the script to be stopped; "" for none
	after     int    // the number of commands that the script still runs
}

// prelude replaces the script's redis by a table whose call fails after a number of commands, with the error of a Redis
// Cluster. An error that the script catches by pcall does not stop the script. The number is an argument behind the script's
// own, so that a server compiles the script only once for all numbers.
const prelude = `local redis = (function(real, left)
  local function call(...)
    if left == 0 then error('Script attempted to access a non local key in a cluster node') end
    left = left - 1
    return real.call(...)
  end
  return {call = call, pcall = real.pcall, error_reply = real.error_reply}
end)(redis, tonumber(table.remove(ARGV)))
`

func (s *stopper) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	words := cmd.Commands()
	if s.sha == "" || words[0] != "EVALSHA" || words[1] != s.sha {
		return s.Client.Do(ctx, cmd)
	}
	keys, err := strconv.Atoi(words[2])
	if err != nil {
		panic(err)
	}
	script := rueidis.NewLuaScript(prelude + s.text)
	return script.Exec(ctx, s.Client, words[3:3+keys], append(slices.Clone(words[3+keys:]), strconv.Itoa(s.after)))
}

// A scene has one lock and three sessions.
type scene struct {
	*site
	stops   *stopper
	scripts map[string]lua.Script
	a, b, c *actor
	last    backend.Token // the highest token that a session has had
}

// An actor is a session of a scene.
type actor struct {
	*member
	epoch, ticket uint64
	prior         backend.Prior
	waits         bool // the session wants the lock
	trusts        bool // the session has the lock, whatever happens to the commands of other sessions
}

// scenes returns a function that makes the next scene on a server.
func scenes(t *testing.T, client rueidis.Client, options ...redisbackend.Option) func() *scene {
	stops := &stopper{Client: client}
	b, err := redisbackend.New(stops, options...)
	require.NoError(t, err)
	s := &site{T: t, client: client, b: b, name: "lock"}
	var actors [3]*actor
	for i := range actors {
		actors[i] = &actor{member: s.join(string(rune('a' + i)))}
	}
	all, quorum := lua.LoadScripts(lua.Variant{}), lua.LoadQuorumScripts()
	scripts := map[string]lua.Script{
		"acquire": all.Acquire, "reenter": all.Reenter, "release": all.Release, "resume": all.Resume, "watch": all.Watch, "note": all.Note,
		"force": all.Force, "await": all.Await, "signal": all.Signal, "withdraw": all.Withdraw, "beat": all.Beat, "offer": all.Offer,
		"pass": all.Pass, "take": all.Take, "free": all.Free, "yield": all.Yield,
		"quorum_token": quorum.Token, "quorum_restore": quorum.Restore, "quorum_want": quorum.Want, "quorum_call": quorum.Call, "quorum_force": quorum.Force,
	}
	return func() *scene {
		s.name = unique("lock")
		for _, m := range actors {
			*m = actor{member: m.member}
			m.remote = m.bind(s.name)
			for len(m.grants) > 0 {
				<-m.grants
			}
			for len(m.signals) > 0 {
				<-m.signals
			}
		}
		return &scene{site: s, stops: stops, scripts: scripts, a: actors[0], b: actors[1], c: actors[2]}
	}
}

// got records the token of a new hold, which must be above all earlier ones.
func (s *scene) got(reply backend.AcquireReply) {
	s.Helper()
	require.Greater(s, reply.First, s.last, "tokens rise")
	s.last = reply.First
}

// takes makes an actor acquire the lock.
func (s *scene) takes(m *actor, change ...func(*backend.AcquireRequest)) {
	s.Helper()
	m.epoch++
	reply := m.acquire(m.epoch, change...)
	require.Equal(s, backend.Granted, reply.Status)
	s.got(reply)
	m.prior = reply.Prior
}

// queues makes actors wait in the queue.
func (s *scene) queues(waiters ...*actor) {
	s.Helper()
	for _, m := range waiters {
		m.epoch++
		m.wait(m.epoch)
		m.waits = true
	}
}

// asks makes an actor wait for the condition.
func (s *scene) asks(m *actor) {
	s.Helper()
	s.takes(m)
	m.ticket = m.epoch + 1
	require.NoError(s, m.await())
	m.epoch = m.ticket
}

// await sends the command await of an actor.
func (a *actor) await() error {
	_, err := a.conditions().Await(a.ctx(), backend.AwaitRequest{Condition: "ready", Epoch: a.epoch, Ticket: a.ticket, Owner: "1", Holds: 1,
		Patience: patience, GrantTTL: grantTTL})
	return err
}

func (a *actor) attempt(change ...func(*backend.AcquireRequest)) error {
	return second(a.remote.Acquire(a.ctx(), request(a.epoch, change...)))
}

func (a *actor) giveUp() error {
	return second(a.remote.Release(a.ctx(), backend.ReleaseRequest{Epoch: a.epoch, Prior: a.prior}))
}

func (a *actor) signalOne(all bool) error {
	return second(a.conditions().Signal(a.ctx(), backend.SignalRequest{Condition: "ready", Epoch: a.epoch, Op: 1, All: all}))
}

// signalled reports whether an actor's ticket is signalled.
func (a *actor) signalled() bool {
	a.Helper()
	status, err := a.conditions().Beat(a.ctx(), "ready", []uint64{a.ticket}, nil)
	require.NoError(a, err)
	return status[0] == backend.Signalled
}

// raw sends a script directly. It is for scripts that only some deployments use.
func (s *scene) raw(name string, keys, args []string) error {
	script := s.scripts[name]
	return script.Exec(s.ctx(), s.stops, keys, args).Error()
}

func (s *scene) keys(kinds ...string) (keys []string) {
	for _, kind := range kinds {
		if kind == "" {
			keys = append(keys, s.name)
		} else {
			keys = append(keys, s.side(kind))
		}
	}
	return keys
}

// A halfRun describes a run that is stopped: the script, the state before, and the command of the actor that sends it.
type halfRun struct {
	name   string // begins with the script's name and a space
	golden func(*scene)
	act    func(*scene) error
	check  func(*scene) // what else must hold after the sender has repeated the command
}

func (h *halfRun) script() string { script, _, _ := strings.Cut(h.name+" ", " "); return script }

var halfRuns = []halfRun{
	{name: "take", golden: func(s *scene) { s.takes(s.a); s.frees(s.a); s.a.epoch++ },
		act: func(s *scene) error { return s.a.attempt(remembering(s.a.prior)) }},
	{name: "free without waiters", golden: func(s *scene) { s.takes(s.a) }, act: func(s *scene) error { return s.a.giveUp() }},
	{name: "free", golden: func(s *scene) { s.takes(s.a); s.queues(s.b, s.c) }, act: func(s *scene) error { return s.a.giveUp() }},
	{name: "pass", golden: func(s *scene) { s.takes(s.a); s.queues(s.b); s.a.epoch++ },
		act: func(s *scene) error { return s.a.attempt(owned("2"), keep, remembering(s.a.prior)) }},
	{name: "pass and begin a lease", golden: func(s *scene) { s.takes(s.a); s.queues(s.b); s.a.epoch++ },
		act: func(s *scene) error { return s.a.attempt(owned("2"), remembering(s.a.prior)) }},
	{name: "yield", golden: func(s *scene) { s.takes(s.a); s.queues(s.b, s.c); s.a.epoch++ },
		act: func(s *scene) error { return s.a.attempt(owned("2"), yield, remembering(s.a.prior)) }},
	{name: "yield a hold that is gone", golden: func(s *scene) { s.takes(s.a); s.queues(s.b); s.lapse(); s.a.epoch++ },
		act: func(s *scene) error { return s.a.attempt(owned("2"), yield, remembering(s.a.prior)) }},

	{name: "acquire", golden: func(s *scene) { s.a.epoch++ }, act: func(s *scene) error { return s.a.attempt(queue) }},
	{name: "acquire behind others", golden: func(s *scene) { s.takes(s.b); s.b.trusts = true; s.queues(s.c); s.a.epoch++ },
		act: func(s *scene) error { s.a.waits = true; return s.a.attempt(queue) }},
	{name: "acquire a free lock of others", golden: func(s *scene) { s.takes(s.a); s.queues(s.b, s.c); s.lapse(); s.a.epoch++ },
		act: func(s *scene) error { s.a.waits = true; return s.a.attempt(queue) }},
	{name: "acquire past others", golden: func(s *scene) { s.takes(s.c); s.queues(s.b); s.lapse(); s.a.epoch++ },
		act: func(s *scene) error { return s.a.attempt(barge) }},
	{name: "acquire by the first of the queue", golden: func(s *scene) { s.takes(s.b); s.queues(s.a, s.c); s.lapse() },
		act: func(s *scene) error { return s.a.attempt(queue) }},
	{name: "acquire to confirm a grant", golden: func(s *scene) { s.takes(s.b); s.queues(s.a, s.c); s.b.release(s.b.epoch) },
		act: func(s *scene) error { return s.a.attempt(queue) }},
	{name: "acquire from oneself", golden: func(s *scene) { s.takes(s.a); s.queues(s.b); s.a.epoch++ },
		act: func(s *scene) error { return s.a.attempt(queue, owned("2")) }},
	{name: "acquire and yield", golden: func(s *scene) { s.takes(s.a); s.queues(s.b, s.c); s.a.epoch++ },
		act: func(s *scene) error { return s.a.attempt(owned("2"), yield) }},
	{name: "acquire behind dead waiters", golden: func(s *scene) { s.takes(s.a); s.dies(s.b); s.queues(s.c); s.a.epoch++ },
		act: func(s *scene) error { return s.a.attempt(owned("2"), yield) }},
	{name: "acquire again after death", golden: func(s *scene) { s.takes(s.c); s.dies(s.a); s.queues(s.b); s.lapse(); s.a.epoch++ },
		act: func(s *scene) error { s.a.waits = true; return s.a.attempt(queue) }},

	{name: "release", golden: func(s *scene) { s.takes(s.a); s.queues(s.b, s.c); s.a.prior = backend.Prior{} }, act: func(s *scene) error { return s.a.giveUp() }},
	{name: "release without waiters", golden: func(s *scene) { s.takes(s.a); s.a.prior = backend.Prior{} }, act: func(s *scene) error { return s.a.giveUp() }},
	{name: "release in doubt", golden: func(s *scene) { s.takes(s.a); s.queues(s.b) }, act: func(s *scene) error {
		return second(s.a.remote.Release(s.ctx(), backend.ReleaseRequest{Epoch: s.a.epoch, Until: time.Now().Add(limit)}))
	}},
	{name: "release of a lock that stays", golden: func(s *scene) { s.takes(s.a); s.queues(s.b) }, act: func(s *scene) error {
		return second(s.a.remote.Release(s.ctx(), backend.ReleaseRequest{Epoch: s.a.epoch, StaysUntil: time.Now().Add(limit)}))
	}, check: func(s *scene) {
		st := s.a.inspect()
		assert.True(s, st.Locked && st.Unlocked, "%v", st)
	}},
	{name: "release of a place", golden: func(s *scene) { s.takes(s.b); s.b.trusts = true; s.queues(s.a, s.c); s.a.waits = false },
		act: func(s *scene) error { return s.a.giveUp() }},
	{name: "release of a place of a free lock", golden: func(s *scene) { s.takes(s.b); s.queues(s.a, s.c); s.a.waits = false; s.lapse() },
		act: func(s *scene) error { return s.a.giveUp() }},
	{name: "force", golden: func(s *scene) { s.takes(s.a); s.queues(s.b, s.c) }, act: func(s *scene) error { return second(s.c.remote.ForceUnlock(s.ctx(), time.Now().Add(time.Minute))) }},
	{name: "force without waiters", golden: func(s *scene) { s.takes(s.a) }, act: func(s *scene) error { return second(s.c.remote.ForceUnlock(s.ctx(), time.Now().Add(time.Minute))) }},
	{name: "offer", golden: func(s *scene) { s.takes(s.a); s.queues(s.b, s.c); s.lapse() },
		act: func(s *scene) error { return s.raw("offer", s.keys("", "t", "q", "w"), []string{"relock:session:"}) }},

	{name: "reenter", golden: func(s *scene) { s.takes(s.a); s.a.trusts = true; s.queues(s.b) }, act: func(s *scene) error {
		return second(s.a.remote.Reenter(s.ctx(), backend.ReenterRequest{Epoch: s.a.epoch, Owner: "1", Op: 1, Holds: 2, Lease: 2 * lease}))
	}, check: func(s *scene) { assert.Equal(s, 2, s.a.inspect().Holds) }},
	{name: "resume", golden: func(s *scene) { s.takes(s.b); s.queues(s.c); s.a.epoch++ }, act: func(s *scene) error {
		return second(s.a.remote.(backend.Resumer).Resume(s.ctx(), backend.ResumeRequest{Epoch: s.a.epoch, Owner: "1", Lease: lease, NotAfter: time.Now().Add(limit)}))
	}, check: func(s *scene) { assert.True(s, s.a.renews(s.a.epoch, lease)) }},
	{name: "watch", golden: func(s *scene) { s.takes(s.a); s.a.trusts = true; s.queues(s.b) },
		act: func(s *scene) error { return second(s.a.remote.(backend.Watcher).Watch(s.ctx(), s.a.epoch)) }},
	{name: "note", golden: func(s *scene) { s.takes(s.a); s.a.trusts = true; s.queues(s.b) }, act: func(s *scene) error {
		return second(s.a.remote.(backend.Noter).Note(s.ctx(), backend.NoteRequest{Epoch: s.a.epoch, Text: "why"}))
	}, check: func(s *scene) { assert.Equal(s, "why", s.a.inspect().Note) }},

	{name: "await", golden: func(s *scene) { s.takes(s.a); s.a.ticket = s.a.epoch + 1; s.queues(s.b, s.c) },
		act: func(s *scene) error { return s.a.await() }, check: func(s *scene) { assert.False(s, s.a.signalled(), "it waits") }},
	{name: "await without waiters", golden: func(s *scene) { s.takes(s.a); s.a.ticket = s.a.epoch + 1 },
		act: func(s *scene) error { return s.a.await() }, check: func(s *scene) { assert.False(s, s.a.signalled(), "it waits") }},
	{name: "signal", golden: func(s *scene) { s.asks(s.b); s.asks(s.c); s.takes(s.a); s.a.trusts = true },
		act: func(s *scene) error { return s.a.signalOne(false) }, check: func(s *scene) { assert.True(s, s.b.signalled(), "the longest waiter") }},
	{name: "signal all", golden: func(s *scene) { s.asks(s.b); s.asks(s.c); s.takes(s.a); s.a.trusts = true },
		act: func(s *scene) error { return s.a.signalOne(true) }, check: func(s *scene) { assert.True(s, s.b.signalled() && s.c.signalled()) }},
	{name: "withdraw", golden: func(s *scene) { s.asks(s.a); s.asks(s.b); s.takes(s.c); s.c.trusts = true },
		act: func(s *scene) error { return second(s.a.conditions().Withdraw(s.ctx(), "ready", s.a.ticket)) },
		check: func(s *scene) {
			require.NoError(s, s.c.signalOne(false))
			assert.True(s, s.b.signalled(), "no signal goes to a waiter that has left")
		}},
	{name: "beat", golden: func(s *scene) { s.asks(s.a); s.asks(s.b); s.takes(s.c); s.queues(s.b); s.lapse() },
		act: func(s *scene) error { return s.a.beats() }},
	{name: "beat that takes a signal back", golden: func(s *scene) {
		s.asks(s.b)
		s.asks(s.a)
		s.takes(s.c)
		s.c.trusts = true
		require.NoError(s, s.c.signalOne(false))
		s.run("ZADD", s.signals(), "1", fmt.Sprintf("b:%d", s.b.ticket)) // now the signal counts as not acknowledged in time
	}, act: func(s *scene) error { return s.a.beats() }, check: func(s *scene) { assert.True(s, s.a.signalled(), "the next waiter gets the signal") }},
	{name: "beat of a waiter that is back", golden: func(s *scene) {
		s.asks(s.a)
		s.asks(s.b)
		s.takes(s.c)
		s.c.trusts = true
		require.NoError(s, s.c.signalOne(false))
	}, act: func(s *scene) error {
		return second(s.a.conditions().Beat(s.ctx(), "ready", nil, []uint64{s.a.ticket}))
	}, check: func(s *scene) {
		assert.Empty(s, must(s.do("ZRANGE", s.signals(), "0", "-1").AsStrSlice()))
		assert.False(s, s.b.signalled(), "no signal is passed on")
	}},

	{name: "quorum_token", golden: func(s *scene) { s.takes(s.a); s.a.trusts = true }, act: func(s *scene) error {
		return s.raw("quorum_token", s.keys("", "t"), []string{"a", text(int64(s.a.epoch)), text(int64(s.last)), text(int64(s.last))})
	}},
	{name: "quorum_restore", golden: func(s *scene) { s.takes(s.a); s.lapse() }, act: func(s *scene) error { return s.restore(s.a.epoch) }},
	{name: "quorum_restore over an older one", golden: func(s *scene) { s.takes(s.a); s.a.epoch++ }, act: func(s *scene) error { return s.restore(s.a.epoch) }},
	{name: "quorum_restore without a record", golden: func(s *scene) { s.takes(s.a); s.lapse(); s.run("DEL", s.side("t")) },
		act: func(s *scene) error { return s.restore(s.a.epoch) }},
	{name: "quorum_want", golden: func(s *scene) { s.takes(s.a); s.a.trusts = true }, act: func(s *scene) error {
		return s.raw("quorum_want", s.keys("n", "", "t"), []string{"b", "60000", "relock:session:"})
	}},
	{name: "quorum_call", golden: func(s *scene) { s.takes(s.a); s.a.trusts = true; s.run("SET", s.side("n"), "a") },
		act: func(s *scene) error {
			return s.raw("quorum_call", s.keys("n", "", "t"), []string{"a", "relock:session:"})
		}},
	{name: "quorum_force", golden: func(s *scene) { s.takes(s.a) },
		act: func(s *scene) error {
			return s.raw("quorum_force", s.keys("", "t"), []string{"1000000", "9000000000000000"})
		}},
}

// frees releases the lock, and makes the session remember the lock's state.
func (s *scene) frees(m *actor) {
	s.Helper()
	result := m.release(m.epoch, remembers(m.prior))
	require.Equal(s, backend.Freed, result)
	m.prior.Freed = true
}

// dies puts an actor into the queue. The patience with the actor ends at once.
func (s *scene) dies(m *actor) {
	s.Helper()
	m.epoch++
	m.wait(m.epoch, impatient)
	s.eventually(func() bool { return !slices.Contains(s.a.inspect().Waiting, m.id) }, "the actor's patience is over")
}

func (a *actor) beats() error {
	return second(a.conditions().Beat(a.ctx(), "ready", []uint64{a.ticket}, nil))
}

func (s *scene) signals() string { return "relock:{" + s.name + "}:s:5:ready:" + s.name }

func (s *scene) restore(epoch uint64) error {
	return s.raw("quorum_restore", s.keys("", "t"), []string{"a", text(int64(epoch)), "2", "1", text(lease.Milliseconds()),
		text(time.Now().Add(limit).UnixMicro()), text(int64(s.last)), text(int64(s.last)), "300"})
}

func TestAScriptMayStopAfterEachOfItsCommands(t *testing.T) {
	t.Parallel()
	t.Run("embedded", func(t *testing.T) {
		onlyWithoutAServer(t) // the embedded Redis compiles each script anew, in the time in which a real one runs a hundred
		stopEach(t, redistest.Start(t).Client())
	})
	t.Run("redis", func(t *testing.T) { stopEach(t, realRedis(t).client) })
}

// goesOn has the ways in which the sender may continue after its script was stopped. The sender does not know what the script
// has done.
var goesOn = map[string]func(*scene, *halfRun){
	"sends it again": func(s *scene, h *halfRun) {
		require.NoError(s, h.act(s))
		if h.check != nil {
			h.check(s)
		}
	},
	"gives up": func(s *scene, h *halfRun) {
		if s.a.trusts {
			return
		}
		require.NoError(s, s.a.giveUp())
		s.a.waits = false
		if s.a.ticket > 0 {
			require.NoError(s, second(s.a.conditions().Withdraw(s.ctx(), "ready", s.a.ticket)))
		}
	},
	"dies": func(s *scene, h *halfRun) { s.a.waits = false },
}

func stopEach(t *testing.T, client rueidis.Client) {
	next := scenes(t, client)
	for _, h := range halfRuns {
		t.Run(h.name, func(t *testing.T) {
			for how, goOn := range goesOn {
				stops := 0
				for stopAfter(t, next(), &h, stops, how, goOn) {
					stops += 1 + rand.IntN(testsize.Of(1, 5))
				}
				assert.Positive(t, stops, "the script runs")
				if !testsize.Full() {
					break // by default only one way to go on, chosen by chance
				}
			}
		})
	}
}

// stopAfter stops a run after some commands, and then lets all actors go on. It returns false if the script has ended before it
// could be stopped.
func stopAfter(t *testing.T, s *scene, h *halfRun, commands int, how string, goOn func(*scene, *halfRun)) bool {
	site := *s.site
	site.T, s.site = t, &site
	for _, m := range []*actor{s.a, s.b, s.c} {
		m.site = &site
	}
	h.golden(s)
	script := s.scripts[h.script()]
	s.stops.sha, s.stops.text, s.stops.after = script.SHA, script.Text, commands
	err := h.act(s)
	s.stops.sha = ""
	if err == nil {
		return false
	}
	s.a.prior = backend.Prior{} // what the session remembers of the lock may be wrong from now on
	failed := t.Failed()
	defer func() {
		if t.Failed() && !failed {
			t.Logf("stopped after %d commands; the sender %s", commands, how)
		}
	}()
	if !strings.HasPrefix(h.name, "quorum_") && h.script() != "offer" { // no backend sends these scripts again
		require.True(t, backend.OutcomeUnknown(err), "%v", err)
		require.False(t, backend.Refused(err), "%v", err)
	}
	s.onlyOne()
	goOn(s, h)
	s.onlyOne()
	s.serves()
	return true
}

// onlyOne checks that Redis renews the hold of at most one session. If a session trusts its hold, Redis must renew that hold.
func (s *scene) onlyOne() {
	s.Helper()
	renewed := 0
	for _, m := range []*actor{s.a, s.b, s.c} {
		has := false
		for epoch := range m.epoch + 1 {
			has = has || m.renews(epoch, lease)
		}
		if has {
			renewed++
		}
		require.True(s, has || !m.trusts, "%s trusts its hold", m.id)
	}
	require.LessOrEqual(s, renewed, 1, "two sessions have the lock")
}

// mostLeases is the largest number of leases that must end before all waiters are served: the lease of a sender that has gone,
// and the lease of a grant to the sender's place.
const mostLeases = 2

// serves sends heartbeats of all waiting sessions until each session has had the lock.
func (s *scene) serves() {
	s.Helper()
	for _, m := range []*actor{s.a, s.b, s.c} {
		if m.trusts {
			require.Equal(s, backend.Released, m.release(m.epoch))
		}
		m.waits = m.waits && !m.trusts || m.ticket > 0 && m.ticket == m.epoch && m != s.a
	}
	for leases := 0; ; {
		waiting, served := 0, 0
		for _, m := range []*actor{s.a, s.b, s.c} {
			if !m.waits {
				continue
			}
			reply := m.acquire(m.epoch, queue)
			if reply.Status == backend.Stale {
				m.epoch++
				reply = m.acquire(m.epoch, queue)
			}
			waiting++
			if reply.Status != backend.Granted {
				continue
			}
			served++
			s.got(reply)
			m.waits = false
			require.Equal(s, backend.Released, m.release(m.epoch))
		}
		switch {
		case waiting == 0:
			return
		case served == 0:
			leases++
			require.LessOrEqual(s, leases, mostLeases, "a waiter has lost its place")
			require.Positive(s, s.ttl(), "the hold has a lease: %s", s.hash())
			s.lapse()
		}
	}
}

// A script that is stopped while it hands the lock over leaves two fields in the hash. Until the new record is written, the
// hold is that of the session in the old record.
func TestTheRecordSaysWhoseHoldItIs(t *testing.T) {
	for name, with := range map[string]func(*site) *site{
		"scripts": func(s *site) *site { return s }, "without": (*site).withoutScripts,
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *site) {
				s = with(s)
				a, b := s.join("a"), s.join("b")
				for _, other := range []string{"0:1", "b:1", "~:1"} { // the new field sorts before the holder's, or after it
					epoch := uint64(2 * s.clock())
					a.take(epoch)
					s.run("HSET", s.name, other, "1")
					assert.Equal(t, "a", a.inspect().Session)
					b.wait(epoch)
					require.True(t, a.renews(epoch, lease))
					a.take(epoch+1, owned("2"))
					assert.Equal(t, "a:2=1", s.hash())
					a.release(epoch + 1)
					b.release(epoch)
				}
			})
		})
	}
}
