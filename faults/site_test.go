package faults

import (
	"context"
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

// patience is for how long what a test has does not end by itself, however busy the machine is.
const patience = 60 * time.Second

// limit is how long a test waits for what must come. It only bounds the time of a failure.
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

// leftByProxies are goroutines that a proxy leaves behind when a connection ends while there is something on its way:
// the flow that would pass it on, and what reads the next thing.
var leftByProxies = []goleak.Option{
	goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"),
	goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2.(*ToxicLink).read"),
}

// patient is tests that are not over before their goroutines are: goleak waits half a second for those.
type patient struct{ *testing.M }

func (m patient) Run() int {
	status := m.M.Run()
	for end := time.Now().Add(limit); status == 0 && goleak.Find(leftByProxies...) != nil && time.Now().Before(end); {
	}
	return status
}

// eventually waits until ok.
func eventually(t *testing.T, ok func() bool, what string) {
	t.Helper()
	require.Eventually(t, ok, limit, 2*time.Millisecond, what)
}

// client is a plain connection to a server, to look at it and to break things.
func client(t *testing.T, addr string) rueidis.Client {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, PipelineMultiplex: -1})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// session opens a session with a client of its own, through addr.
func session(t *testing.T, addr string, opts ...reentrant.Option) *reentrant.Session {
	t.Helper()
	return sessionBy(t, addr, func(b backend.Backend) backend.Backend { return b }, opts...)
}

// sessionBy opens one whose backend goes by another.
func sessionBy(t *testing.T, addr string, by func(backend.Backend) backend.Backend, opts ...reentrant.Option) (s *reentrant.Session) {
	t.Helper()
	for begun := time.Now(); s == nil; { // opening is one try, and a machine may stand still for as long
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
		if t.Failed() { // what it still holds is not given back
			patience = time.Second
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = s.Close(ctx)
	})
	return s
}

// A section is what a lock protects: it notices when two are inside at once, and tokens that do not rise.
type section struct {
	inside   atomic.Int32
	overlaps atomic.Int32
	fallen   atomic.Int32
	passed   atomic.Int64  // for goroutines that only watch
	token    backend.Token // guarded by the lock under test: a race here is an overlap too
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
	assert.Zero(t, s.overlaps.Load(), "two were inside at once")
	assert.Zero(t, s.fallen.Load(), "a token did not rise")
}

// lasting are options with which nothing ends by itself, and nothing is asked again, while a test runs.
func lasting() []reentrant.Option {
	return []reentrant.Option{reentrant.WithLease(2 * patience), reentrant.WithHeartbeat(patience / 2)}
}

// enduring are those for tests that lose messages: what is lost costs a heartbeat, and no lease ends while a machine is
// busy with something else.
func enduring() []reentrant.Option {
	return []reentrant.Option{reentrant.WithLease(patience), reentrant.WithHeartbeat(patience / 20)}
}

// server starts a Redis of the test's own.
func server(t *testing.T) *redisserver.Server {
	t.Helper()
	return redisserver.Start(t)
}

// keys are what is in a Redis that is about a lock, apart from the record of its tokens, which stays for a while.
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

// rounds scales the long tests: FAULTS_ROUNDS=10 makes them ten times as long.
func rounds(n int) int {
	factor, err := strconv.Atoi(os.Getenv("FAULTS_ROUNDS"))
	if err != nil {
		return n
	}
	return n * max(factor, 1)
}

// evals is how many scripts a server has run.
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

// fewestEvals is how many scripts do takes, of three times: what a machine that stalls has sent again only adds to them.
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
