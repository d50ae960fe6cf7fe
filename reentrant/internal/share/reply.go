package share

import (
	"context"
	"errors"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant/internal/check"
	"github.com/relock-go/relock/reentrant/internal/core"
	"github.com/relock-go/relock/reentrant/internal/share/plan"
)

// exchange sends one copy of the claim and handles the reply.
func (n *Name) exchange() {
	s := n.room.session
	n.mu.Lock()
	sent := n.moment()
	if !n.plan.Claims() {
		n.mu.Unlock()
		return
	}
	n.plan.Send(&sent)
	req := n.plan.Request(&sent, sent.Now.Add(s.Config.CommandTimeout))
	waiter := waiter(n.plan.Claimed())
	n.asked = sent.Now
	n.mu.Unlock()

	s.Counts.Commands.Add(1)
	ctx, cancel := context.WithDeadline(n.room.quit, req.NotAfter)
	reply, err := n.sharer.Share(ctx, req)
	cancel()
	if err == nil {
		err = check.Share(&req, &reply)
	}
	err = core.WrapUnavailable(context.Background(), err)

	n.mu.Lock()
	n.asked = time.Time{}
	var notify func()
	if n.plan.Awaits(req.Epoch) {
		at := n.moment()
		if err != nil {
			n.failedLocked(&at, err)
		} else {
			n.err, n.replied = nil, at.Now
			if denies(&req, &reply) {
				n.denied = at.Now
			}
			notify = n.carry(n.plan.Replied(&at, &reply, sent.Now, sent.Ahead))
			n.noteLocked()
		}
		n.heardLocked(sent.Now, err)
	}
	n.mu.Unlock()
	call(notify)
	if _, waiting := n.tier.Usage(); waiting == 0 {
		waiter = core.NoWaiter // users that only tried have got their error
	}
	s.NoteServed(n.name, err, waiter)
}

// denies reports whether a reply says that others have, or wait for, what users of this session want.
func denies(req *backend.ShareRequest, r *backend.ShareReply) bool {
	return r.Status == backend.Shared && (r.Placed || r.Units < req.Least || r.May < r.Units)
}

// failedLocked handles the failure of a copy of the claim: the server did not reply, or refused.
func (n *Name) failedLocked(at *plan.Moment, err error) {
	if backend.OutcomeUnknown(n.err) && !backend.OutcomeUnknown(err) {
		err = backend.WithOutcomeUnknown(err) // an earlier copy may have been carried out
	}
	n.err, n.failed = err, err
	f := plan.Failure{Refused: backend.Refused(err), Unreplicated: errors.Is(err, backend.ErrNotReplicated), WrongKind: errors.Is(err, backend.ErrWrongKind)}
	if f.Refused {
		n.reason = err
	}
	n.plan.Failed(at, f)
}
