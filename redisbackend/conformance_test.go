package redisbackend_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/backend/backendtest"
	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/redisbackend/redistest"
)

// The tests in this file run the suite that every Backend passes, on the embedded Redis and on a real one.

// patiently makes a client of Open wait longer for replies than the machine may stand still.
func patiently(url string) string {
	separator := "?"
	if strings.Contains(url, "?") {
		separator = "&"
	}
	return url + separator + "dial_timeout=1m&write_timeout=1m"
}

// onlyWithoutAServer skips a suite on the embedded Redis where a real server is installed, since the suite runs on that, too.
// With RELOCK_TOPOLOGIES=1 it skips nothing.
func onlyWithoutAServer(t *testing.T) {
	t.Helper()
	if redisserver.Installed() {
		testsize.OfATopology(t)
	}
}

func TestConformanceEmbedded(t *testing.T) {
	onlyWithoutAServer(t)
	t.Parallel()
	backendtest.Run(t, func(t *testing.T) backend.Backend {
		return redistest.InBubble(t).Backend()
	}, backendtest.InBubble(), backendtest.InParallel())
}

func TestConformanceRedis(t *testing.T) {
	t.Parallel()
	url := redisserver.URL(t)
	backendtest.Run(t, func(t *testing.T) backend.Backend {
		b, err := redisbackend.Open(t.Context(), patiently(url))
		require.NoError(t, err)
		t.Cleanup(b.Close)
		return b
	}, backendtest.InParallel())
}

// Without scripts, the verbs are transactions.
func TestConformancePlain(t *testing.T) {
	t.Parallel()
	url := redisserver.URL(t)
	backendtest.Run(t, func(t *testing.T) backend.Backend {
		b, err := redisbackend.Open(t.Context(), patiently(url), redisbackend.WithoutScripts())
		require.NoError(t, err)
		t.Cleanup(b.Close)
		return b
	}, backendtest.InParallel())
}

// mixed is a Backend in which every other session runs no scripts.
type mixed struct {
	kinds [2]backend.Backend
	next  atomic.Int64
}

func (m *mixed) Connect(ctx context.Context, session string, to backend.Sink) (backend.Conn, error) {
	return m.kinds[m.next.Add(1)%2].Connect(ctx, session, to)
}

// Sessions with scripts and sessions without scripts share a name: each kind reads what the other has written.
func TestConformanceOfSharedNamesMixed(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]int{"ScriptsFirst": 0, "PlainFirst": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mixedConformance(t, first)
		})
		if !testsize.Full() {
			break // by default only one of the orders, chosen by chance
		}
	}
}

func mixedConformance(t *testing.T, first int) {
	url := redisserver.URL(t)
	m := &mixed{}
	for i, opts := range [][]redisbackend.Option{{redisbackend.WithoutScripts()}, nil} {
		b, err := redisbackend.Open(t.Context(), patiently(url), opts...)
		require.NoError(t, err)
		t.Cleanup(b.Close)
		m.kinds[i] = b
	}
	for _, c := range backendtest.Cases() {
		if strings.HasPrefix(c.Name, "Share") {
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel()
				mine := &mixed{kinds: m.kinds}
				mine.next.Store(int64(first))
				c.Func(t, mine)
			})
		}
	}
}

func TestConformancePlainCluster(t *testing.T) {
	testsize.OfATopology(t)
	t.Parallel()
	servers := redisserver.StartCluster(t, 3, 0)
	backendtest.Run(t, func(t *testing.T) backend.Backend {
		b, err := redisbackend.Open(t.Context(), patiently(servers.Masters[0].URL()), redisbackend.WithoutScripts())
		require.NoError(t, err)
		t.Cleanup(b.Close)
		return b
	}, backendtest.InParallel())
}

func TestConformancePlainEmbedded(t *testing.T) {
	onlyWithoutAServer(t)
	t.Parallel()
	backendtest.Run(t, func(t *testing.T) backend.Backend {
		b, err := redisbackend.New(redistest.InBubble(t).Client(), redisbackend.WithoutScripts())
		require.NoError(t, err)
		return b
	}, backendtest.InBubble(), backendtest.InParallel())
}

// offering gives the suite more time for WithRedisson: a session that waits offers the lock to the first waiter only after it
// has subscribed to Redisson's channel. On a busy machine that can take some seconds, above all in marked slots.
var offering = backendtest.Brief(10 * time.Second)

func TestConformanceRedisson(t *testing.T) {
	testsize.OfATopology(t)
	t.Parallel()
	url := redisserver.URL(t)
	backendtest.Run(t, func(t *testing.T) backend.Backend {
		b, err := redisbackend.Open(t.Context(), patiently(url), redisbackend.WithRedisson())
		require.NoError(t, err)
		t.Cleanup(b.Close)
		return b
	}, backendtest.InParallel(), offering)
}
