package keeper_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/keeper"
)

const (
	commandTimeout = 1500 * time.Millisecond
	maxSleep       = time.Second // between two surveys while there are leases
)

// A room is a keeper.Room whose leases the test sets.
type room struct {
	during func() // called by each survey, unless it is nil

	mu      sync.Mutex
	leases  []*lease
	surveys []keeper.Survey
}

// A lease of a room is due at a time, and has its renewals' results.
type lease struct {
	mu      sync.Mutex
	due     time.Time
	results []error
	ahead   time.Duration // with the last result
}

func (r *room) Survey(s *keeper.Survey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.surveys = append(r.surveys, *s)
	for _, l := range r.leases {
		l.survey(s)
	}
	if r.during != nil {
		r.during()
	}
}

func (l *lease) survey(s *keeper.Survey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !s.Renewing && !s.Now.Before(l.due) {
		s.Renew(backend.Renewal{Epoch: 1}, l)
	}
	s.WakeBy(l.due.Add(time.Minute))
}

func (l *lease) Renewed(r *backend.Renewal, sent time.Time, ahead time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.results, l.ahead = append(l.results, r.Err), ahead
	l.due = sent.Add(time.Hour)
	if r.Err != nil {
		l.due = sent
	}
}

// at returns when the surveys of a room began, as the ages of the test. It first lets everything come to rest.
func (r *room) at(begun time.Time) (at []time.Duration) {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.surveys {
		at = append(at, s.Now.Sub(begun))
	}
	return at
}

// last returns the last survey.
func (r *room) last() keeper.Survey {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.surveys[len(r.surveys)-1]
}

// add adds a lease.
func (r *room) add(l *lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leases = append(r.leases, l)
}

// A conn is a connection on which the test handles renewals.
type conn struct {
	backend.Conn
	renew func(context.Context, []backend.Renewal)
}

func (c conn) Renew(ctx context.Context, renewals []backend.Renewal) { c.renew(ctx, renewals) }

// start returns a keeper of some rooms. It is stopped at the end of the test.
func start(t *testing.T, renew func(context.Context, []backend.Renewal), rooms ...keeper.Room) *keeper.Keeper {
	s := core.NewSession(core.Config{
		CommandTimeout: commandTimeout, Logger: slog.New(slog.DiscardHandler),
		Ahead: func(time.Time) time.Duration { return 7 },
	})
	s.Conn = conn{renew: renew}
	k := keeper.New(s)
	k.Start(rooms...)
	t.Cleanup(k.Stop)
	synctest.Wait()
	return k
}

// noRenewal fails the test if a command is sent.
func noRenewal(t *testing.T) func(context.Context, []backend.Renewal) {
	return func(context.Context, []backend.Renewal) { t.Error("a renewal was sent") }
}

// silent is a server that does not reply.
func silent(ctx context.Context, renewals []backend.Renewal) {
	<-ctx.Done()
	for i := range renewals {
		renewals[i].Err = ctx.Err()
	}
}

func TestLeasesOfAllRoomsAreRenewedByOneCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		due := time.Now().Add(500 * time.Millisecond)
		one, other := &room{leases: []*lease{{due: due}, {due: due}}}, &room{leases: []*lease{{due: due}}}
		var sent []int
		start(t, func(_ context.Context, renewals []backend.Renewal) { sent = append(sent, len(renewals)) }, one, other)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		assert.Equal(t, []int{3}, sent)
		for _, l := range slices.Concat(one.leases, other.leases) {
			assert.Equal(t, []error{nil}, l.results)
			assert.Equal(t, time.Duration(7), l.ahead)
		}
	})
}

func TestASilentServerDelaysNoSurvey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		r := &room{leases: []*lease{{due: begun}}}
		sent := make(chan time.Duration, 2)
		start(t, func(ctx context.Context, renewals []backend.Renewal) {
			sent <- time.Since(begun)
			silent(ctx, renewals)
		}, r)
		time.Sleep(maxSleep)
		assert.Equal(t, []time.Duration{0, maxSleep}, r.at(begun))
		assert.True(t, r.last().Renewing, "there is one batch at a time")
		time.Sleep(commandTimeout - maxSleep)
		assert.Equal(t, []time.Duration{0, maxSleep, commandTimeout}, r.at(begun), "a survey follows the end of the batch")
		assert.False(t, r.last().Renewing)
		assert.Equal(t, []time.Duration{0, commandTimeout}, []time.Duration{<-sent, <-sent})
		require.Len(t, r.leases[0].results, 1)
		require.ErrorIs(t, r.leases[0].results[0], backend.ErrUnavailable)
	})
}

func TestASessionWithoutLeasesSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, r := time.Now(), &room{}
		start(t, noRenewal(t), r)
		time.Sleep(24 * time.Hour)
		assert.Equal(t, []time.Duration{0}, r.at(begun))
	})
}

// A lease that is on its way from one owner to the next is not seen. The keeper, which was woken for it, must not sleep
// until it is woken again.
func TestAKeeperThatIsWokenForNothingDozes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, r := time.Now(), &room{}
		k := start(t, noRenewal(t), r)
		k.WakeBy(begun)
		synctest.Wait()
		k.WakeBy(begun.Add(maxSleep))
		assert.Equal(t, []time.Duration{0, 0}, r.at(begun), "it wakes by then anyway")
		time.Sleep(24 * time.Hour)
		assert.Equal(t, []time.Duration{0, 0, maxSleep}, r.at(begun), "after that it sleeps")
	})
}

func TestALeaseThatEndsBeforeTheNextSurveyBringsThatForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		r := &room{leases: []*lease{{due: begun.Add(time.Hour)}}}
		k := start(t, noRenewal(t), r)
		r.add(&lease{due: begun.Add(time.Hour)})
		k.WakeBy(begun.Add(maxSleep / 2))
		assert.Equal(t, []time.Duration{0, 0}, r.at(begun))
	})
}

// A survey may have looked at a name already when the name gets a lease.
func TestALeaseThatComesDuringASurveyIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		r := &room{leases: []*lease{{due: begun.Add(time.Hour)}}}
		late := make(chan *keeper.Keeper, 1)
		r.during = func() {
			select {
			case k := <-late:
				k.WakeBy(time.Now().Add(maxSleep / 2))
			default:
			}
		}
		late <- start(t, noRenewal(t), r)
		time.Sleep(maxSleep)
		assert.Equal(t, []time.Duration{0, maxSleep, maxSleep}, r.at(begun))
	})
}

func TestAnotherServerHasEveryLeaseRenewedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		r := &room{leases: []*lease{{due: begun.Add(time.Hour)}}}
		k := start(t, noRenewal(t), r)
		assert.Equal(t, begun, r.last().Refreshed, "no lease is older than the session")
		time.Sleep(maxSleep / 2)
		k.Refresh()
		assert.Equal(t, []time.Time{time.Now(), time.Now()}, []time.Time{r.last().Now, r.last().Refreshed})
	})
}

func TestStopEndsACommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		r := &room{leases: []*lease{{due: begun}}}
		k := start(t, silent, r)
		assert.False(t, k.Stopped())
		k.Stop()
		assert.True(t, k.Stopped())
		assert.Zero(t, time.Since(begun))
		assert.Len(t, r.leases[0].results, 1)
		surveys := r.at(begun)
		time.Sleep(time.Minute)
		assert.Equal(t, surveys, r.at(begun))
	})
}
