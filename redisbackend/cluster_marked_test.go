package redisbackend_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/backend/backendtest"
	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/redisbackend"
	lua "github.com/relock-go/relock/redisbackend/internal/wire"
	"github.com/relock-go/relock/reentrant"
)

// In these tests a slot is marked as migrating, but no key has been moved yet. When a command needs a key that does not exist,
// the node assumes that the key has been moved, even if the script that sends the command has just deleted it.

// mark marks a key's slot as migrating.
func mark(t *testing.T, servers *redisserver.Cluster, key string) *move {
	return startMove(t, servers, key)
}

// unmark removes the mark. The keys stay where they are.
func (m *move) unmark() {
	m.t.Helper()
	m.from.run("CLUSTER", "SETSLOT", m.slot, "STABLE")
	m.to.run("CLUSTER", "SETSLOT", m.slot, "STABLE")
}

// Await gives the lock to the session that waits for it. In a marked slot, too, there is only one holder, and if Await changed
// anything, it does not report that it changed nothing.
func TestAwaitInAMarkedSlotHasOneHolder(t *testing.T) {
	t.Parallel()
	s, servers := cluster(t, 0)
	one, two := s.session(), s.session()
	here, there := one.NewLock("lock"), two.NewLock("lock")
	ready, other := here.NewCondition("ready"), there.NewCondition("ready")

	// Two owners of the other session wait for the condition. One of them is signalled and now waits for the lock.
	back := make(chan error, 2)
	for _, name := range []string{"first", "second"} {
		ctx := reentrant.WithOwner(t.Context(), name)
		require.NoError(t, there.Lock(ctx))
		go func() {
			err := other.Await(ctx)
			if err == nil && !there.IsHeldByCurrentOwner(ctx) {
				err = reentrant.ErrNotHeld
			}
			back <- err
		}()
		s.eventually(func() bool { locked, err := there.IsLocked(s.ctx()); return err == nil && !locked }, "the signalled owner waits for the lock")
	}
	ctx := reentrant.WithOwner(t.Context(), "holder")
	require.NoError(t, here.Lock(ctx))
	require.NoError(t, ready.Signal(ctx))
	s.waits(here, two)

	m := mark(t, servers, "lock")
	m.from.name = "lock"
	waited := make(chan error, 1)
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { waited <- ready.Await(limited) }()
	var err error
	s.eventually(func() bool {
		select {
		case err = <-waited:
		default:
		}
		return err != nil || strings.HasPrefix(m.from.hash(), two.ID())
	}, "Await fails, or the other session has the lock")
	held := here.IsHeldByCurrentOwner(ctx)
	m.unmark()
	if err != nil {
		if held { // then no other session may have the lock, either now or later
			require.NoError(t, again(here.Verify)(ctx), "two holders: Await returned %v, and its caller keeps a hold that Redis has given to another session", err)
		}
		return
	}
	require.NoError(t, await(t, back, "the signalled owner returns"))
	s.eventually(func() bool { return !here.IsHeldByCurrentOwner(ctx) }, "Await learns that the hold is gone, if its first copy had no reply")
}

// Without scripts a verb is a transaction. A node runs it as a whole or not at all: the node checks for missing keys when a
// command is queued, before it runs the first command.
func TestATransactionInAMarkedSlotIsWhole(t *testing.T) {
	t.Parallel()
	_, servers := cluster(t, 0)
	m := mark(t, servers, "lock")
	m.unmark()
	m.from.run("HSET", "lock", "a:1", "1")
	m.from.run("RPUSH", "{lock}q", "b")
	m.from.run("CLUSTER", "SETSLOT", m.slot, "MIGRATING", m.id(m.to))
	exec := func(commands ...string) error {
		return m.from.client.Dedicated(func(c rueidis.DedicatedClient) error {
			var all rueidis.Commands
			for _, words := range slices.Concat([]string{"MULTI"}, commands, []string{"EXEC"}) {
				all = append(all, c.B().Arbitrary(strings.Fields(words)...).Build())
			}
			replies := c.DoMulti(t.Context(), all...)
			results, err := replies[len(replies)-1].ToArray()
			for _, r := range results {
				if err == nil {
					err = r.Error()
				}
			}
			return err
		})
	}
	require.Error(t, exec("DEL lock", "SET {lock}missing x"))
	require.NotEmpty(t, must(m.from.do("HGETALL", "lock").AsStrMap()), "the transaction changes nothing")
	require.NoError(t, exec("DEL lock {lock}q", "HSET lock b:1 1", "RPUSH {lock}q c"), "a key that the transaction deletes itself does not count as missing")
	require.Equal(t, map[string]string{"b:1": "1"}, must(m.from.do("HGETALL", "lock").AsStrMap()))
}

// A marker is a client of a Cluster that marks a script's slot while the script runs. The marker fills missing keys with
// entries of dead sessions, which change nothing, so that the node runs the script. This does not help if the hold or the
// record is missing, or expires: then the node refuses the script before the script has done anything, and the marker sends it
// again without the mark.
type marker struct {
	rueidis.Client
	t       testing.TB
	masters []*site
	ids     []string

	mu     sync.Mutex // one script runs at a time, so that no other is sent to a marked slot
	ran    map[string]int
	halves []string // errors of scripts that were stopped half-way
}

func newMarker(t *testing.T, servers *redisserver.Cluster) *marker {
	m := &marker{Client: connect(t, servers.Masters[0].Addr()), t: t, ran: make(map[string]int)}
	for _, server := range servers.Masters {
		master := node(t, server)
		m.masters = append(m.masters, master)
		m.ids = append(m.ids, must(master.do("CLUSTER", "MYID").ToString()))
	}
	return m
}

func (m *marker) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	return m.DoMulti(ctx, cmd)[0]
}

// DoMulti sends a pipeline's commands one by one. No script of another caller runs in between.
func (m *marker) DoMulti(ctx context.Context, all ...rueidis.Completed) (results []rueidis.RedisResult) {
	if slices.ContainsFunc(all, runsAtASlot) {
		m.mu.Lock()
		defer m.mu.Unlock()
	}
	for _, cmd := range all {
		results = append(results, m.send(ctx, cmd))
	}
	return results
}

// runsAtASlot reports whether a command is a script with keys.
func runsAtASlot(cmd rueidis.Completed) bool {
	words := cmd.Commands()
	return (words[0] == "EVALSHA" || words[0] == "EVAL") && words[2] != "0"
}

func (m *marker) send(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	if runsAtASlot(cmd) {
		if result, ran := m.marked(ctx, cmd.Commands()); ran {
			return result
		}
	}
	return m.Client.Do(ctx, cmd)
}

// marked runs a script in its marked slot. It returns false if the node has refused it.
func (m *marker) marked(ctx context.Context, words []string) (rueidis.RedisResult, bool) {
	n := must(strconv.Atoi(words[2]))
	keys := words[3 : 3+n]
	slot := int64(lua.Slot(keys[0]))
	at := int(((slot+1)*int64(len(m.masters)) - 1) / 16384)
	master := m.masters[at].client
	do := func(words ...string) rueidis.RedisResult {
		return master.Do(context.WithoutCancel(ctx), master.B().Arbitrary(words...).Build()) // so the mark is always removed
	}
	for _, key := range keys {
		m.fill(do, key)
	}
	before := m.dump(do, keys)
	assert.NoError(m.t, do("CLUSTER", "SETSLOT", text(slot), "MIGRATING", m.ids[(at+1)%len(m.ids)]).Error())
	result := master.Do(ctx, master.B().Arbitrary(words...).Build())
	assert.NoError(m.t, do("CLUSTER", "SETSLOT", text(slot), "STABLE").Error())
	err := result.Error()
	switch {
	case err == nil:
		m.ran[words[1]]++
	case strings.HasPrefix(err.Error(), "TRYAGAIN"), strings.HasPrefix(err.Error(), "ASK"):
		return result, false
	case strings.Contains(err.Error(), "non local"):
		if before.unchanged(m.dump(do, keys)) { // if not, a hold expired after the node had looked for the keys
			return result, false
		}
		m.halves = append(m.halves, err.Error())
	}
	return result, true
}

// A dump has the values of some keys at a moment.
type dump struct {
	at    time.Time // a time before the node was asked
	value map[string]string
	left  map[string]time.Duration // the time until each key expires
}

func (m *marker) dump(do func(...string) rueidis.RedisResult, keys []string) dump {
	d := dump{at: time.Now(), value: make(map[string]string), left: make(map[string]time.Duration)}
	for _, key := range keys {
		left, err := do("PTTL", key).ToInt64()
		assert.NoError(m.t, err)
		if value, err := do("DUMP", key).ToString(); err == nil {
			d.value[key], d.left[key] = value, time.Duration(left)*time.Millisecond
		} else {
			assert.True(m.t, rueidis.IsRedisNil(err), err)
		}
	}
	return d
}

// unchanged reports whether the keys still have the same values, except for keys that have expired.
func (d dump) unchanged(now dump) bool {
	for key, value := range now.value {
		if d.value[key] != value {
			return false
		}
	}
	for key, left := range d.left {
		_, there := now.value[key]
		if !there && (left < 0 || now.at.Sub(d.at)+time.Millisecond < left) {
			return false
		}
	}
	return true
}

// fill writes an entry that changes nothing to a missing key: a place in the queue, a waiter, or a signal not yet
// acknowledged.
func (m *marker) fill(do func(...string) rueidis.RedisResult, key string) {
	_, kind, _ := strings.Cut(key, "}:")
	command, ok := map[string][]string{
		"q:": {"RPUSH", key, "dead"}, "w:": {"HSET", key, "dead", "0 0 1 1 1 0 300 x"}, "n:": {"SET", key, "0 x"},
		"c:": {"ZADD", key, "1", "dead:1"}, "s:": {"ZADD", key, "9000000000000000", "dead:2"}, "h:": {"HSET", key, "dead:1", "0 1 1 1 1 0 300 x"},
	}[kind[:min(2, len(kind))]]
	if n, err := do("EXISTS", key).ToInt64(); ok && err == nil && n == 0 {
		assert.NoError(m.t, do(command...).Error())
	}
}

// This is the suite that every Backend passes, with every script in a marked slot: each script does everything or nothing.
func TestConformanceMarkedSlots(t *testing.T) {
	testsize.OfATopology(t)
	t.Parallel()
	t.Run("own", func(t *testing.T) {
		m := conformsInMarkedSlots(t, nil)
		m.hasRun(lua.LoadScripts(lua.Variant{Cluster: true}), true)
	})
	t.Run("Redisson", func(t *testing.T) {
		m := conformsInMarkedSlots(t, []backendtest.Option{offering}, redisbackend.WithRedisson())
		m.hasRun(lua.LoadScripts(lua.Variant{Cluster: true, Redisson: true}), false)
	})
}

func conformsInMarkedSlots(t *testing.T, suite []backendtest.Option, options ...redisbackend.Option) *marker {
	m := newMarker(t, redisserver.StartCluster(t, 2, 0))
	t.Run("suite", func(t *testing.T) {
		backendtest.Run(t, func(t *testing.T) backend.Backend {
			b, err := redisbackend.New(m, options...)
			require.NoError(t, err)
			return b
		}, append(suite, backendtest.InParallel())...)
	})
	assert.Empty(t, m.halves, "no script is stopped half-way")
	return m
}

// hasRun checks that each script has run in a marked slot. lean reports whether sessions send the scripts that compare the
// record.
func (m *marker) hasRun(s *lua.Scripts, lean bool) {
	scripts := map[string]lua.Script{
		"acquire": s.Acquire, "reenter": s.Reenter, "release": s.Release, "renew": s.Renew, "resume": s.Resume, "watch": s.Watch,
		"note": s.Note, "inspect": s.Inspect, "force": s.Force, "await": s.Await, "signal": s.Signal, "withdraw": s.Withdraw, "beat": s.Beat,
		"share": s.Share, "share_renew": s.ShareRenew,
	}
	if lean {
		scripts["pass"], scripts["free"] = s.Pass, s.Free
	}
	for name, script := range scripts {
		assert.Positive(m.t, m.ran[script.SHA], "%s runs in a marked slot", name)
		m.t.Logf("%s: %d", name, m.ran[script.SHA])
	}
}
