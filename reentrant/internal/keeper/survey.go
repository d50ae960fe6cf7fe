package keeper

import (
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/core"
)

// A Room has names with leases: the locks of a session, or its shared names.
type Room interface {
	// Survey looks at each lease. It takes each lease that can no longer be trusted from its users, and adds each lease that is
	// due to the batch.
	Survey(s *Survey)
}

// A Holder is a name whose lease is renewed. When the reply comes, the name may have another lease, or none.
type Holder interface {
	// Renewed handles the reply to the renewal that was sent at sent, when the wall clock was ahead of the monotonic one by
	// ahead.
	Renewed(r *backend.Renewal, sent time.Time, ahead time.Duration)
}

// A Survey is one look at all leases of a session.
type Survey struct {
	Now       time.Time
	Ahead     time.Duration // how far the wall clock is ahead of the monotonic one
	Renewing  bool          // a batch is under way; the survey after its replies can begin another one
	Refreshed time.Time     // leases that began before this moment are renewed immediately: there may be another server since

	wake     time.Time         // when the next survey begins
	renewals []backend.Renewal // of the batch
	holders  []Holder          // in the same order
}

// WakeBy has the next survey begin no later than at, and within maxSleep in any case, since there is a lease.
func (s *Survey) WakeBy(at time.Time) {
	s.wake = core.Earlier(s.wake, core.Earlier(at, s.Now.Add(maxSleep)))
}

// Renew adds a renewal to the batch. The caller has seen that no other batch is under way.
func (s *Survey) Renew(r backend.Renewal, h Holder) {
	s.renewals, s.holders = append(s.renewals, r), append(s.holders, h)
}
