package share

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/share/plan"
	"github.com/relock-go/relock/sharedqueue"
)

func TestTrustInAPushCountsFromTheGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newReadWrite(t)
		reader := enter(s, "reader", sharedqueue.Read)
		s.command(1).place(0)
		synctest.Wait()
		granted := time.Now()
		time.Sleep(time.Second / 2) // the time for which the push is on its way
		s.push(1, 1, time.Second/2, 3*testHeartbeat)
		require.Equal(t, sharedqueue.Admitted, next(s, reader.outcome))
		assert.Equal(t, until(granted, 3*testHeartbeat), s.name.Until())
		assert.Equal(t, until(granted, 3*testHeartbeat), next(s, s.losses), "no renewal is answered")
	})
}

func TestTrustInAnAnswerCountsFromTheSendingOfItsCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newReadWrite(t)
		reader := enter(s, "reader", sharedqueue.Read)
		s.command(1) // gets no reply
		resent := s.command(1)
		time.Sleep(time.Second)
		resent.grant(1)
		require.Equal(t, sharedqueue.Admitted, next(s, reader.outcome))
		assert.Equal(t, until(resent.at, testLease), s.name.Until())
		assert.Equal(t, until(resent.at, testLease), next(s, s.losses), "no renewal is answered")
	})
}

func TestTrustInARenewalCountsFromItsSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newReadWrite(t)
		reader := enter(s, "reader", sharedqueue.Read)
		s.command(1).grant(1)
		require.Equal(t, sharedqueue.Admitted, next(s, reader.outcome))
		renewal := next(s, s.renewals)
		time.Sleep(time.Second)
		renewal.reply <- backend.Renewal{Units: 1}
		synctest.Wait()
		assert.Equal(t, until(renewal.at, testLease), s.name.Until())
	})
}

func TestUsersAreNotifiedWhenTheServerHasFewerUnits(t *testing.T) {
	t.Run("of a renewal", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newPermits(t)
			renewing(s).reply <- backend.Renewal{Units: 1}
			told := time.Now()
			assert.Equal(t, told, next(s, s.losses))
			assert.Zero(t, s.command(2).req.Keep)
		})
	})
	t.Run("while the session waits for more", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := withIdle(t, 4)
			enter(s, 1, 0)
			s.command(2).place(3)
			told := time.Now()
			assert.Equal(t, told, next(s, s.losses))
			assert.Zero(t, s.command(3).req.Keep)
		})
	})
	t.Run("of none under the token", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := withIdle(t, 4)
			enter(s, 1, 0)
			s.command(2).reply <- backend.ShareReply{Status: backend.ShareLost}
			told := time.Now()
			assert.Equal(t, told, next(s, s.losses))
			assert.Zero(t, s.command(3).req.Keep)
		})
	})
}

func TestAPushWhoseTrustIsHalfOverIsConfirmedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newReadWrite(t)
		reader := enter(s, "reader", sharedqueue.Read)
		s.command(1).place(0)
		synctest.Wait()
		pushed := time.Now()
		s.push(1, 1, 2*testHeartbeat, 3*testHeartbeat)
		synctest.Wait()
		assert.Empty(t, reader.outcome)
		confirmed := s.command(1)
		assert.Equal(t, pushed, confirmed.at)
		confirmed.grant(1)
		assert.Equal(t, sharedqueue.Admitted, next(s, reader.outcome))
	})
}

// A suspended machine does not know how much of the lease is left, and the next look at all leases may be a second away.
func TestUnitsThatCameWhileTheMachineSleptAreConfirmed(t *testing.T) {
	came := map[string]func(p *plan.Plan, at *plan.Moment){
		"a reply": func(p *plan.Plan, at *plan.Moment) {
			p.Replied(at, &backend.ShareReply{Status: backend.Shared, Units: 1, First: 2, Last: 2, May: backend.Unlimited}, at.Now, 0)
		},
		"a push": func(p *plan.Plan, at *plan.Moment) {
			p.Pushed(at, &backend.ShareGrant{Name: "x", Epoch: 1, Units: 1, First: 2, Last: 2, May: backend.Unlimited, TTL: time.Minute, NotBefore: at.Now})
		},
	}
	for how, comes := range came {
		for _, slept := range []time.Duration{0, time.Hour} {
			t.Run(fmt.Sprint(how, " over ", slept), func(t *testing.T) {
				p, at, queue := newPlan()
				w := ask(t, p, at, queue)
				at.Ahead = slept
				comes(p, at)
				_, again := p.Next(at)
				assert.Equal(t, slept > 0, again, "whether another copy asks for the units")
				assert.Equal(t, slept == 0, queue.InUse() == 1, "whether they are used")
				queue.Expel()
				queue.Wait(w, nil, nil)
			})
		}
	}
}

// Until a claim has its reply, only a copy of the claim confirms the units that it keeps, because a renewal names the
// previous epoch. After a sleep the session sends that copy without waiting for the pause to end.
func TestUnitsThatAClaimKeepsAreConfirmedAfterASleep(t *testing.T) {
	for _, slept := range []time.Duration{0, time.Hour} {
		t.Run(slept.String(), func(t *testing.T) {
			p, at, queue := newPlan()
			ask(t, p, at, queue)
			p.Replied(at, &backend.ShareReply{Status: backend.Shared, Units: 1, First: 2, Last: 2, May: backend.Unlimited}, at.Now, 0)
			require.Equal(t, 1, queue.InUse())
			ask(t, p, at, queue)
			p.Failed(at, plan.Failure{})
			_, again := p.Next(at)
			require.False(t, again, "there is a pause before the next copy")
			at.Ahead = slept
			look := p.Slept(at).Look
			_, again = p.Next(at)
			assert.Equal(t, slept > 0, look && again, "whether the pause is over")
		})
	}
}

// When the trust in units ends, their users are told of the loss, also if a grant comes before the keeper. The server keeps a place
// whose session's units have ended, and serves it again. So a grant does not say that the session has had its units all the time.
func TestAGrantDoesNotRestoreTrustThatHasEnded(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprint("late=", late), func(t *testing.T) {
			p, at, queue := newPlan()
			tier := &reasonTier{permitTier: permitTier{Permits: queue}}
			at.Tier = tier
			grant := func(units int, sent time.Time) {
				p.Replied(at, &backend.ShareReply{Status: backend.Shared, Units: units, First: 2, Last: 2, May: backend.Unlimited}, sent, 0)
			}
			ask(t, p, at, queue)
			grant(1, at.Now)
			require.Equal(t, 1, queue.InUse())
			end, _ := p.Until()
			at.Now = end.Add(-time.Second)
			sent := at.Now
			ask(t, p, at, queue)
			if at.Now = end.Add(-1); late {
				at.Now = end
			}
			grant(2, sent)
			if late {
				assert.Zero(t, queue.InUse())
				assert.Equal(t, "the lease was not renewed in time", tier.why)
			} else {
				assert.Equal(t, 2, queue.InUse())
				assert.Empty(t, tier.why)
			}
		})
	}
}

// Trust that has ended goes on with a reply that the server still has the units, as long as no user has been told. After that
// no reply restores it.
func TestNoReplyRestoresUnitsWhoseLossWasTold(t *testing.T) {
	reply := func(r backend.ShareReply) func(*plan.Plan, *plan.Moment, time.Time) {
		return func(p *plan.Plan, at *plan.Moment, sent time.Time) {
			if p.Awaits(2) {
				p.Replied(at, &r, sent, 0)
			}
		}
	}
	for name, c := range map[string]struct {
		claims bool
		reply  func(p *plan.Plan, at *plan.Moment, sent time.Time)
	}{
		"to a renewal": {false, func(p *plan.Plan, at *plan.Moment, sent time.Time) {
			p.Renewed(at, plan.Renewed{Epoch: 1, Had: 1, Units: 1, Sent: sent})
		}},
		"that more must wait":   {true, reply(backend.ShareReply{Status: backend.Shared, Units: 1, Placed: true, May: backend.Unlimited})},
		"that more are refused": {true, reply(backend.ShareReply{Status: backend.Shared, Units: 1, May: backend.Unlimited})},
	} {
		for _, told := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", told=", told), func(t *testing.T) {
				p, at, queue := newPlan()
				ask(t, p, at, queue)
				p.Replied(at, &backend.ShareReply{Status: backend.Shared, Units: 1, First: 2, Last: 2, May: backend.Unlimited}, at.Now, 0)
				require.Equal(t, 1, queue.InUse())
				end, _ := p.Until()
				sent := end.Add(-time.Second)
				if at.Now = sent; c.claims {
					ask(t, p, at, queue)
				}
				if at.Now = end; told {
					require.NotNil(t, p.Expire(at).Notify)
				}
				c.reply(p, at, sent)
				until, _ := p.Until()
				if told {
					assert.Zero(t, queue.InUse())
					assert.Zero(t, until)
				} else {
					assert.Equal(t, 1, queue.InUse())
					assert.Greater(t, until, end)
				}
			})
		}
	}
}

// A reasonTier notes why the units were lost.
type reasonTier struct {
	permitTier
	why string
}

func (t *reasonTier) Lose(why string) (notify func()) {
	t.why = why
	return t.permitTier.Lose(why)
}

// newPlan returns the plan of a semaphore, over a real queue, at a moment that does not pass.
func newPlan() (*plan.Plan, *plan.Moment, *sharedqueue.Permits) {
	options := plan.Options{
		Opened: time.Now(), Lease: time.Minute, Heartbeat: testHeartbeat, CommandTimeout: time.Second, Patience: time.Minute, GrantTTL: time.Minute,
		Pause:      func(_ int, most time.Duration) time.Duration { return most },
		EpochAbove: func(least uint64) uint64 { return least + 1 }, Seen: func() backend.Token { return 0 }, Saw: func(backend.Token) {},
	}
	queue := sharedqueue.NewPermits(func() time.Duration { return 0 })
	p := plan.New(backend.Permits)
	return &p, &plan.Moment{Options: &options, Now: options.Opened, Tier: permitTier{Permits: queue}}, queue
}

// ask makes a user claim a permit, and sends a copy of the plan's claim for that permit.
func ask(t *testing.T, p *plan.Plan, at *plan.Moment, queue *sharedqueue.Permits) *sharedqueue.PermitWaiter {
	o, w, _, _ := queue.Enter(1, 0)
	require.Equal(t, sharedqueue.Waiting, o)
	_, send := p.Next(at)
	require.True(t, send)
	p.Send(at)
	return w
}
