package redisbackend_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/backend/backendtest"
	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/redisbackend"
)

// This is the suite that every Backend passes, on a Cluster of three nodes. Each case has locks of its own, whose slots may be
// on any of the nodes.
func TestConformanceCluster(t *testing.T) {
	testsize.OfATopology(t)
	t.Parallel()
	servers := redisserver.StartCluster(t, 3, 0)
	backendtest.Run(t, func(t *testing.T) backend.Backend {
		b, err := redisbackend.Open(t.Context(), patiently(servers.Masters[0].URL()))
		require.NoError(t, err)
		t.Cleanup(b.Close)
		return b
	}, backendtest.InParallel())
}
