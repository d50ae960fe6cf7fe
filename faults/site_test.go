package faults

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/reentrant"
)

// patience is a time that must not pass in a test, however busy the machine is, such as a lease.
const patience = 60 * time.Second

// limit is how long a test waits before it fails.
var limit = testsize.Patience(patience)

func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(childEnv); ok {
		os.Exit(childMain(text))
	}
	zerolog.SetGlobalLevel(zerolog.Disabled)
	testsize.Parallel(8)
	testsize.CollectLess()
	goleak.VerifyTestMain(patient{m}, leftByProxies...)
}

// leftByProxies are goroutines that a proxy leaves behind when a connection ends while data are on their way: the flow
// that would pass the data on, and the reader of the next chunk.
var leftByProxies = []goleak.Option{
	goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"),
	goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2.(*ToxicLink).read"),
}

// patient runs the tests, and returns only when their goroutines have ended: goleak alone waits half a second for that.
type patient struct{ *testing.M }

func (p patient) Run() int {
	status := p.M.Run()
	for end := time.Now().Add(limit); status == 0 && goleak.Find(leftByProxies...) != nil && time.Now().Before(end); {
	}
	return status
}

// slow is a time that a call takes only if this machine stands still. A session gives a command twice as long.
const slow = time.Second

// orLater calls Unlock, and ignores the error that the reply came too late: then the session repeats the release in the
// background.
func orLater(unlock func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		began := time.Now()
		err := unlock(ctx)
		if errors.Is(err, reentrant.ErrUnavailable) && time.Since(began) > slow {
			return nil
		}
		return err
	}
}

// eventually waits until ok returns true.
func eventually(t *testing.T, ok func() bool, what string) {
	t.Helper()
	require.Eventually(t, ok, limit, 2*time.Millisecond, what)
}

// client is a plain connection to a server, to look at its data and to cause faults.
func client(t *testing.T, addr string) rueidis.Client {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, PipelineMultiplex: -1})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// session opens a session with a client of its own over addr.
func session(t *testing.T, addr string, opts ...reentrant.Option) *reentrant.Session {
	t.Helper()
	return sessionBy(t, addr, func(b backend.Backend) backend.Backend { return b }, opts...)
}

// sessionBy opens a session whose backend is wrapped by the function by.
func sessionBy(t *testing.T, addr string, by func(backend.Backend) backend.Backend, opts ...reentrant.Option) (s *reentrant.Session) {
	t.Helper()
	for begun := time.Now(); s == nil; { // opening a session is a single try, and the machine may stand still during it
		b, err := redisbackend.Open(t.Context(), "redis://"+addr)
		if err == nil {
			t.Cleanup(b.Close)
			s, err = reentrant.NewSession(by(b), opts...)
		}
		if err != nil {
			require.Less(t, time.Since(begun), limit, "%v", err)
		}
	}
	t.Cleanup(func() {
		patience := limit
		if t.Failed() { // Close does not release what the session still holds
			patience = time.Second
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = s.Close(ctx)
	})
	return s
}

// A section is what a lock protects: it detects two owners at once, and tokens that do not rise.
type section struct {
	inside   atomic.Int32
	overlaps atomic.Int32
	fallen   atomic.Int32
	passed   atomic.Int64  // read by goroutines that do not have the lock
	token    backend.Token // guarded by the lock under test: if two owners overlap, the race detector finds that too
	entries  int
}

func (s *section) run(token backend.Token) {
	if s.inside.Add(1) != 1 {
		s.overlaps.Add(1)
	}
	if token <= s.token {
		s.fallen.Add(1)
	}
	s.token = token
	s.entries++
	s.passed.Add(1)
	s.inside.Add(-1)
}

func (s *section) verify(t *testing.T) {
	t.Helper()
	assert.Zero(t, s.overlaps.Load(), "two owners were inside at once")
	assert.Zero(t, s.fallen.Load(), "a token did not rise")
}

// lasting returns options with which no lease ends, and no waiter asks again, while a test runs.
func lasting() []reentrant.Option {
	return []reentrant.Option{reentrant.WithLease(2 * patience), reentrant.WithHeartbeat(patience / 2)}
}

// enduring returns options for tests that lose messages: a lost message costs a heartbeat, and no lease ends while the
// machine is busy.
func enduring() []reentrant.Option {
	return []reentrant.Option{reentrant.WithLease(patience), reentrant.WithHeartbeat(patience / 20)}
}

// locked takes a lock, and returns the hold's token. If this machine stands still for so long that the hold is lost, locked
// takes the lock again.
func locked(ctx context.Context, t *testing.T, l *reentrant.Lock) backend.Token {
	t.Helper()
	for {
		began := time.Now()
		require.NoError(t, l.Lock(ctx))
		token, err := l.Token(ctx)
		if !errors.Is(err, reentrant.ErrLost) || time.Since(began) < slow {
			require.NoError(t, err)
			return token
		}
		require.ErrorIs(t, l.Unlock(ctx), reentrant.ErrLost)
	}
}

// server starts a Redis for this test.
func server(t *testing.T) *redisserver.Server {
	t.Helper()
	return redisserver.Start(t)
}

// keys returns the keys in Redis that belong to a lock, except the records of tokens, which stay for a while.
func keys(t *testing.T, c rueidis.Client, lock string) []string {
	t.Helper()
	all, err := c.Do(t.Context(), c.B().Keys().Pattern("*"+lock+"*").Build()).AsStrSlice()
	require.NoError(t, err)
	var left []string
	for _, key := range all {
		if key != fmt.Sprintf("relock:{%s}:t:%s", lock, lock) {
			left = append(left, key)
		}
	}
	return left
}

// rounds scales the long tests: to a third, unless tests run at full size. FAULTS_ROUNDS=10 makes them ten times as long as at
// full size.
func rounds(n int) int {
	factor, err := strconv.Atoi(os.Getenv("FAULTS_ROUNDS"))
	if err != nil {
		return testsize.Of(n, n/3)
	}
	return n * max(factor, 1)
}

// evals returns how many scripts a server has run.
func evals(t *testing.T, c rueidis.Client) int {
	t.Helper()
	info, err := c.Do(t.Context(), c.B().Info().Section("commandstats").Build()).ToString()
	require.NoError(t, err)
	n := 0
	for line := range strings.Lines(info) {
		for _, command := range []string{"cmdstat_evalsha:", "cmdstat_eval:"} {
			if rest, ok := strings.CutPrefix(line, command); ok {
				var calls int
				_, err := fmt.Sscanf(rest, "calls=%d", &calls)
				require.NoError(t, err)
				n += calls
			}
		}
	}
	return n
}

// fewestEvals calls do three times, and returns the least number of scripts that a call takes. On a slow machine commands are
// sent again, which only adds to the number.
func fewestEvals(t *testing.T, c rueidis.Client, do func()) int {
	t.Helper()
	fewest := math.MaxInt
	for range 3 {
		before := evals(t, c)
		do()
		fewest = min(fewest, evals(t, c)-before)
	}
	return fewest
}
