package cookbook

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/redisbackend/redistest"
)

// ledger is a Ledger in memory, which notices if a balance is read twice before it is written.
type ledger struct {
	mu      sync.Mutex
	balance map[string]int
	open    map[string]bool
	overlap int
	during  func() // called in Balance
}

func newLedger() *ledger { return &ledger{balance: map[string]int{}, open: map[string]bool{}} }

func (l *ledger) Balance(_ context.Context, user string) (int, error) {
	if l.during != nil {
		l.during()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[user] {
		l.overlap++
	}
	l.open[user] = l.balance[user] > 0
	return l.balance[user], nil
}

func (l *ledger) SetBalance(_ context.Context, user string, balance int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[user] = false
	l.balance[user] = balance
	return nil
}

func TestEveryUserSpendsWhatIsThereAndNoMore(t *testing.T) {
	t.Parallel()
	const users, each = 300, 3
	server := redistest.Start(t)
	ledger := newLedger()
	for user := range users {
		ledger.balance[strconv.Itoa(user)] = each
	}
	var all sync.WaitGroup
	var refused sync.Map
	for range each + 1 {
		session := process(t, server)
		all.Go(func() {
			for user := range users {
				if err := Spend(t.Context(), session, ledger, strconv.Itoa(user), 1); err != nil {
					assert.ErrorIs(t, err, ErrTooLittle)
					_, twice := refused.LoadOrStore(user, true)
					assert.False(t, twice, "user %d was refused twice", user)
				}
			}
		})
	}
	all.Wait()
	assert.Zero(t, ledger.overlap)
	for user, balance := range ledger.balance {
		assert.Zero(t, balance, "user %s", user)
	}
}

func TestAUserWaitsOnlyForItself(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	session, other := process(t, server), process(t, server)
	ledger := newLedger()
	ledger.balance["slow"], ledger.balance["quick"] = 2, 1
	quick, again := make(chan error, 1), make(chan error, 1)
	var begun atomic.Bool
	ledger.during = func() {
		if begun.Swap(true) {
			return
		}
		// slow is in its section, and stays there until the test closes this channel
		go func() { quick <- Spend(t.Context(), session, ledger, "quick", 1) }()
		select {
		case err := <-quick:
			assert.NoError(t, err)
		case <-time.After(time.Minute):
			assert.Fail(t, "quick waits for slow")
		}
		go func() { again <- Spend(t.Context(), other, ledger, "slow", 1) }()
		waiting(t, session, "wallet:slow", 1)
	}
	require.NoError(t, Spend(t.Context(), session, ledger, "slow", 1))
	require.NoError(t, <-again)
	assert.Zero(t, ledger.overlap)
	assert.Zero(t, session.Stats().Held, "no lock is held any more")
}
