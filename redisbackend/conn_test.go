package redisbackend_test

import (
	"context"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/redisbackend"
)

// hears checks that a session receives the grant of a lock, for an attempt with the given epoch.
func hears(s *site, m *member, epoch uint64) {
	s.Helper()
	holder := s.join(unique("holder"))
	s.name = unique("lock")
	holder.remote, m.remote = holder.bind(s.name), m.bind(s.name)
	holder.take(1)
	m.wait(epoch)
	holder.release(1)
	g := m.granted()
	assert.Equal(s, s.name, g.Name)
	assert.False(s, g.NotBefore.IsZero())
}

// Sessions work with every kind of client that a caller may bring.
func TestSessionsWorkWithEveryKindOfClient(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*rueidis.ClientOption){
		"RESP3":               func(*rueidis.ClientOption) {},
		"RESP2":               func(o *rueidis.ClientOption) { o.AlwaysRESP2 = true },
		"client-side caching": func(o *rueidis.ClientOption) { o.DisableCache = false },
		"four connections":    func(o *rueidis.ClientOption) { o.PipelineMultiplex = 2 },
		"always pipelining":   func(o *rueidis.ClientOption) { o.AlwaysPipelining = true },
		"no pipelining":       func(o *rueidis.ClientOption) { o.DisableAutoPipelining = true },
		"another database":    func(o *rueidis.ClientOption) { o.SelectDB = 7 },
		"no retries":          func(o *rueidis.ClientOption) { o.DisableRetry = true },
		"short lifetime":      func(o *rueidis.ClientOption) { o.ConnLifetime = 20 * time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			s := realRedis(t)
			client := connect(t, redisserverAddr(s), change)
			b, err := redisbackend.New(client)
			require.NoError(t, err)
			s.client, s.b = client, b
			m := s.join("m")
			for epoch := range uint64(5) {
				hears(s, m, epoch+1)
			}
		})
	}
}

func redisserverAddr(s *site) string {
	for addr := range s.client.Nodes() {
		return addr
	}
	return ""
}

func TestConnectSaysWhatIsWrong(t *testing.T) {
	users := map[string]string{
		"noscript": "-eval -evalsha", "nopublish": "-publish", "nochannel": "resetchannels", "nokeys": "resetkeys",
	}
	server := redisserver.Start(t)
	admin := connect(t, server.Addr())
	for user, rules := range users {
		words := append([]string{"ACL", "SETUSER", user, "on", ">pw", "+@all", "~*", "&*"}, strings.Fields(rules)...)
		require.NoError(t, admin.Do(t.Context(), admin.B().Arbitrary(words...).Build()).Error())
		for _, resp2 := range []bool{false, true} {
			client := connect(t, server.Addr(), func(o *rueidis.ClientOption) {
				o.Username, o.Password, o.AlwaysRESP2 = user, "pw", resp2
			})
			b, err := redisbackend.New(client)
			require.NoError(t, err)
			_, err = b.Connect(t.Context(), "s", newMember())
			require.ErrorContains(t, err, "NOPERM", user)
			assert.True(t, backend.Refused(err), user)
			assert.False(t, backend.OutcomeUnknown(err), user)
			assert.NotContains(t, err.Error(), "pw")
		}
	}
}

func TestConnectChecksItsArguments(t *testing.T) {
	s := embedded(t)
	for _, session := range []string{"", "a b", "a:b", "{a}", "a\n", "é", strings.Repeat("x", 129)} {
		_, err := s.b.Connect(s.ctx(), session, newMember())
		assert.ErrorContains(t, err, "session's id", "%q", session)
	}
	_, err := s.b.Connect(s.ctx(), "s", nil)
	assert.ErrorContains(t, err, "nil sink")
}

func TestConnectHonoursItsContext(t *testing.T) {
	server := redisserver.Start(t)
	client := connect(t, server.Addr())
	b, err := redisbackend.New(client)
	require.NoError(t, err)
	server.Freeze()
	defer server.Thaw()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = b.Connect(ctx, "s", newMember())
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// Connect makes the connection for the channel after the one for commands. If its context ends while it waits for the second
// connection, Connect returns, too.
func TestConnectHonoursItsContextWhileSubscribing(t *testing.T) {
	s := realRedis(t)
	silent := silentAfterFirst(t, redisserverAddr(s))
	client := connect(t, silent, func(o *rueidis.ClientOption) { o.ForceSingleClient = true })
	b, err := redisbackend.New(client)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	_, err = b.Connect(ctx, "s", newMember())
	require.ErrorIs(t, err, context.Canceled)
}

// silentAfterFirst forwards one connection to addr. It accepts further connections, and never replies on them.
func silentAfterFirst(t *testing.T, addr string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var open sync.Map
	t.Cleanup(func() {
		l.Close()
		open.Range(func(conn, _ any) bool { conn.(net.Conn).Close(); return true })
	})
	go func() {
		for first := true; ; first = false {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			open.Store(conn, nil)
			if first {
				relay(&open, conn, addr)
			}
		}
	}()
	return l.Addr().String()
}

func relay(open *sync.Map, conn net.Conn, addr string) {
	up, err := net.Dial("tcp", addr)
	if err != nil {
		conn.Close()
		return
	}
	open.Store(up, nil)
	for _, way := range [2][2]net.Conn{{conn, up}, {up, conn}} {
		go func() {
			defer conn.Close()
			defer up.Close()
			buf := make([]byte, 4096)
			for {
				n, err := way[0].Read(buf)
				if err != nil {
					return
				}
				if _, err := way[1].Write(buf[:n]); err != nil {
					return
				}
			}
		}()
	}
}

func TestALostChannelIsOpenedAgain(t *testing.T) {
	t.Parallel()
	for _, resp2 := range []bool{false, true} {
		s := realRedis(t)
		client := connect(t, redisserverAddr(s), func(o *rueidis.ClientOption) { o.AlwaysRESP2 = resp2 })
		b, err := redisbackend.New(client)
		require.NoError(t, err)
		s.b = b
		m := s.join("m")
		<-m.resumed
		for i := range uint64(3) {
			s.run("CLIENT", "KILL", "TYPE", "pubsub")
			select {
			case <-m.resumed:
			case <-time.After(silence):
				require.FailNow(t, "the sink was not notified that the channel was opened again")
			}
			hears(s, m, i+1)
		}
		assert.Empty(t, m.resumed, "the sink is notified once for each lost connection")
	}
}

func TestAServerRestartIsSurvived(t *testing.T) {
	server := redisserver.Start(t)
	s := &site{T: t, client: connect(t, server.Addr()), name: "lock"}
	var err error
	s.b, err = redisbackend.New(s.client)
	require.NoError(t, err)
	m := s.join("m")
	<-m.resumed
	last := m.take(1)
	server.Restart(t)
	select {
	case <-m.resumed:
	case <-time.After(silence):
		require.FailNow(t, "the sink was not notified that the channel was opened again")
	}
	var reply backend.AcquireReply
	s.eventually(func() bool {
		reply, err = m.remote.Acquire(s.ctx(), request(2))
		return err == nil
	}, "commands work again")
	assert.Equal(t, backend.Granted, reply.Status)
	assert.Greater(t, reply.First, last)
	hears(s, m, 3)
}

func TestInspectAllSendsScriptsAgainThatTheServerForgot(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a := s.join("a")
		a.take(1)
		s.run("SCRIPT", "FLUSH")
		all := slices.Repeat([]backend.Inspection{{Remote: a.remote}}, 3)
		a.conn.(backend.Inspector).InspectAll(s.ctx(), all)
		for _, one := range all {
			require.NoError(t, one.Err)
			assert.True(t, one.State.Locked)
		}
	})
}

func TestAFlushedScriptCacheIsFilledAgain(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.join("b")
		for i := range uint64(3) {
			flush := func() { s.run("SCRIPT", "FLUSH") }
			flush()
			a.take(2*i + 1)
			flush()
			assert.Equal(t, 2, a.reenter(2*i+1, 1, 2, 0).Holds)
			flush()
			assert.True(t, a.renews(2*i+1, lease))
			flush()
			assert.True(t, a.inspect().Locked)
			flush()
			b.wait(i + 1)
			flush()
			assert.Equal(t, backend.Released, a.release(2*i+1))
			b.granted()
			flush()
			held, err := b.remote.ForceUnlock(s.ctx(), time.Now().Add(time.Minute))
			require.NoError(t, err)
			assert.True(t, held)
		}
	})
}

func TestGarbageOnTheChannelIsIgnored(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		app, err := newBackend(s.client, "app:")
		require.NoError(t, err)
		m := s.joinVia(app, "m")
		for _, message := range []string{
			"", "g", "g 1 2 3", "probe", "g 1 2 2 1000 5 other", "g 1 2 2 1000 5 app:", strings.Repeat("g ", 1000), "\x00\xff",
		} {
			s.run("PUBLISH", "app:relock:session:m", message)
		}
		s.run("PUBLISH", "app:relock:session:m", "g 7 2 3 1000 5 app:lock")
		g := m.granted()
		assert.Equal(t, "lock", g.Name)
		assert.Equal(t, uint64(7), g.Epoch)
		assert.Equal(t, time.Second, g.TTL)
		assert.Empty(t, m.grants)
	})
}

// If the time of a grant cannot be converted to the local clock, the grant is passed on as one that has to be confirmed.
func TestAGrantFromAnotherClockHasNoNotBefore(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		m := s.join("m")
		future := s.clock() + 3600e6
		s.run("PUBLISH", "relock:session:m", "g 7 2 3 1000 "+text(future)+" lock")
		assert.True(t, m.granted().NotBefore.IsZero())
		s.run("PUBLISH", "relock:session:m", "g 7 2 3 1000 "+text(s.clock())+" lock")
		assert.True(t, m.granted().NotBefore.IsZero(), "the mapping of the clocks has been dropped")
		m.take(1)
		s.run("PUBLISH", "relock:session:m", "g 7 2 3 1000 "+text(s.clock())+" lock")
		assert.WithinDuration(t, time.Now(), m.granted().NotBefore, limit, "the reply to a command brings the mapping back")
	})
}

// As long as the session does not know the server's clock, its first attempt is refused as late. The reply contains the clock's
// time, and the same call sends the attempt again.
func TestTheClockIsLearntWithinOneCall(t *testing.T) {
	s := realRedis(t)
	m := s.join("m")
	commands := func(epoch uint64) int {
		before := scriptCalls(s)
		m.take(epoch)
		return scriptCalls(s) - before
	}
	m.take(1) // loads the script
	assert.Equal(t, 1, commands(2), "the clock is known")
	s.run("PUBLISH", "relock:session:m", "g 7 2 3 1000 "+text(s.clock()+3600e6)+" lock")
	m.granted() // the time of this grant is in the future, so the session forgets the clock
	assert.Equal(t, 2, commands(3))
	assert.Equal(t, 1, commands(4))
}

func TestTheFirstAttemptIsOneCommand(t *testing.T) {
	s := realRedis(t)
	s.join("other").take(1) // loads the script
	s.name = "another"
	m := s.join("m")
	before := scriptCalls(s)
	m.take(1)
	assert.Equal(t, 1, scriptCalls(s)-before)
}

func TestCommandsOfAnUncontendedLock(t *testing.T) {
	s := realRedis(t)
	m := s.join("m")
	m.take(1)
	m.release(1) // loads the scripts
	before := scriptCalls(s)
	for i := range uint64(100) {
		m.take(i + 2)
		m.release(i + 2)
	}
	assert.Equal(t, 200, scriptCalls(s)-before)
}

func TestCloseLeavesNothingRunning(t *testing.T) {
	for _, resp2 := range []bool{false, true} {
		s := realRedis(t)
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{redisserverAddr(s)}, DisableCache: true,
			AlwaysRESP2: resp2, PipelineMultiplex: -1})
		require.NoError(t, err)
		b, err := redisbackend.New(client)
		require.NoError(t, err)
		for range 3 {
			m := newMember()
			conn, err := b.Connect(s.ctx(), "m", m)
			require.NoError(t, err)
			remote, err := conn.Bind("lock")
			require.NoError(t, err)
			_, err = remote.Acquire(s.ctx(), request(1))
			require.NoError(t, err)
			require.NoError(t, conn.Close())
			require.NoError(t, conn.Close(), "twice")
			s.eventually(func() bool { return running("redisbackend.(*subscription)") == 0 }, "the session's goroutine has ended")
			s.eventually(func() bool {
				n, err := s.do("PUBSUB", "NUMSUB", "relock:session:m").AsIntMap()
				return err == nil && n["relock:session:m"] == 0
			}, "no session listens any more")
		}
		s.run("CLIENT", "KILL", "TYPE", "pubsub")
		b.Close() // the session does not close the client
		require.NoError(t, client.Do(s.ctx(), client.B().Ping().Build()).Error())
		client.Close()
	}
}

func TestCloseWhileTheServerIsGone(t *testing.T) {
	server := redisserver.Start(t)
	client := connect(t, server.Addr())
	b, err := redisbackend.New(client)
	require.NoError(t, err)
	m := newMember()
	conn, err := b.Connect(t.Context(), "m", m)
	require.NoError(t, err)
	server.Stop()
	require.NoError(t, conn.Close())
	assert.Eventually(t, func() bool { return running("redisbackend.") == 0 }, silence, tick)
}

// running counts the goroutines that are in a function of the given name.
func running(function string) int { return len(goroutinesIn(function)) }

// goroutinesIn returns the numbers of the goroutines that are in a function of the given name.
func goroutinesIn(function string) (numbers []string) {
	buf := make([]byte, 1<<20)
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(stack, function) && !strings.Contains(stack, "testing.tRunner(") {
			numbers = append(numbers, strings.Fields(stack)[1])
		}
	}
	return numbers
}

// If the right to publish is taken away after a session was opened, its releases still succeed, and waiters depend on their
// heartbeats.
func TestAMessageThatCannotBeSentDoesNotStopARelease(t *testing.T) {
	s := realRedis(t)
	a, b := s.join("a"), s.join("b")
	a.take(1)
	b.wait(1)
	s.run("ACL", "SETUSER", "default", "-publish")
	assert.Equal(t, backend.Released, a.release(1))
	assert.Equal(t, "b:1=1", s.hash())
	b.take(1, queue)
	assert.Empty(t, b.grants)
}

// A user with only the rights that the package's documentation lists can use the package.
func TestTheDocumentedRightsAreEnough(t *testing.T) {
	words := append([]string{"ACL", "SETUSER", "least", "on", ">pw", "~app:*", "resetchannels", "&app:relock:session:*"},
		documented(t, "and the commands ")...)
	s := realRedis(t)
	s.run(words...)
	client := connect(t, redisserverAddr(s), password("pw"), func(o *rueidis.ClientOption) { o.Username = "least" })
	b, err := newBackend(client, "app:")
	require.NoError(t, err)
	one, two, three := s.joinVia(b, "one"), s.joinVia(b, "two"), s.joinVia(b, "three")
	one.take(1)
	one.reenter(1, 1, 2, lease)
	two.wait(1)
	three.wait(1)
	three.wait(1)
	assert.True(t, one.renews(1, lease))
	assert.True(t, one.inspect().Locked)
	one.release(1, doubtfulFor(time.Minute))
	two.granted()
	one.wait(2)
	assert.Equal(t, backend.Withdrawn, one.release(2))
	two.acquire(2, yield)
	three.granted()
	three.take(2, owned("2"))
	held, err := three.remote.ForceUnlock(s.ctx(), time.Now().Add(time.Minute))
	require.NoError(t, err)
	assert.True(t, held)
	two.granted()
	for ticket := range uint64(3) {
		two.take(10 * (ticket + 1))
		_, err = two.conditions().Await(s.ctx(), backend.AwaitRequest{Condition: "ready", Epoch: 10 * (ticket + 1), Ticket: 100 + ticket,
			Owner: "1", Holds: 1, Patience: patience, GrantTTL: grantTTL})
		require.NoError(t, err)
	}
	three.take(4)
	_, err = three.conditions().Signal(s.ctx(), backend.SignalRequest{Condition: "ready", Epoch: 4, Op: 1})
	require.NoError(t, err)
	_, err = two.conditions().Withdraw(s.ctx(), "ready", 101)
	require.NoError(t, err)
	_, err = two.conditions().Beat(s.ctx(), "ready", []uint64{100, 102}, nil)
	require.NoError(t, err)
}
