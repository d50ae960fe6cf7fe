package redisbackend_test

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant"
)

// A journal is a log that one goroutine can read while another goroutine writes to it.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) count(words string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return bytes.Count(j.text.Bytes(), []byte(words))
}

// A server that refuses writes for a while does not make Lock fail. The log has one line when the outage begins, and one when
// it ends. TryLock returns the server's error.
func testOutage(t *testing.T, setting, bad, good, words string) {
	log := &journal{}
	h := newHouse(t, reentrant.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	set := func(value string) {
		require.NoError(t, h.bare.client.Do(t.Context(),
			h.bare.client.B().Arbitrary("CONFIG", "SET", setting, value).Build()).Error())
	}
	set(bad)
	l := h.session.NewLock("outage")
	err := again(func(ctx context.Context) error { return second(l.TryLock(ctx)) })(t.Context())
	require.ErrorContains(t, err, words)
	assert.False(t, backend.Refused(err))
	assert.False(t, backend.OutcomeUnknown(err))

	locked := make(chan error, 1)
	ctx := reentrant.WithOwner(t.Context(), "waiter")
	go func() { locked <- l.Lock(ctx) }()
	commands := h.session.Stats().Commands
	require.Eventually(t, func() bool { return h.session.Stats().Commands >= commands+3 || len(locked) > 0 },
		time.Minute, time.Millisecond, "the command is sent again")
	set(good)
	require.NoError(t, <-locked)
	assert.NoError(t, orLater(l.Unlock)(ctx))
	require.Eventually(t, func() bool { return log.count("lock=outage") > 1 }, time.Minute, time.Millisecond)
	assert.Equal(t, 1, log.count(words), "one line when the outage begins")
	assert.Equal(t, 2, log.count("lock=outage"), "one line when the outage ends")
}

func TestLockWaitsWhileTheServerLacksReplicas(t *testing.T) {
	testOutage(t, "min-replicas-to-write", "1", "0", "NOREPLICAS")
}

func TestLockWaitsWhileTheServerLacksMemory(t *testing.T) {
	testOutage(t, "maxmemory", "1", "0", "OOM")
}
