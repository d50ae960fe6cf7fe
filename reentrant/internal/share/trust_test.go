package share

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
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
