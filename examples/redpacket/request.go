package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"

	"github.com/relock-go/relock/reentrant"
)

// A desk serves the requests of a process.
type desk struct {
	packet  packet
	session *reentrant.Session
	lock    lockMode

	requests []int // openids, in the order of their requests
	answers  [late + 1]atomic.Int64
	lost     atomic.Int64 // holds that were lost before their request was done
}

// requestsAt returns the requests that come to a process, in random order. They are the process's share of each openid's
// requests.
func requestsAt(seat, processes, openids, requests int) []int {
	var mine []int
	for openid := range openids {
		for i := range requests {
			if (openid+i)%processes == seat-1 {
				mine = append(mine, openid)
			}
		}
	}
	rand.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
	return mine
}

// serve serves the request with the given number.
func (d *desk) serve(ctx context.Context, request int) error {
	a, err := d.answer(ctx, d.requests[request])
	if err == nil {
		d.answers[a].Add(1)
	}
	return err
}

func (d *desk) answer(ctx context.Context, openid int) (answer, error) {
	for {
		// This look needs no lock. Its result is final if the openid has a part or comes too late. Any other result may change.
		if a, err := d.packet.look(ctx, openid); a != ask || err != nil {
			return a, err
		}
		a, err := d.section(ctx, openid)
		lost := errors.Is(err, reentrant.ErrLost)
		if !lost && !reentrant.OutcomeUnknown(err) || ctx.Err() != nil {
			return a, err
		}
		if lost {
			d.lost.Add(1)
		}
		// After a lost hold, or an Unlock that was not confirmed, the next look shows whether the part was moved.
	}
}

// section does the work that only one request of an openid may do at a time.
func (d *desk) section(ctx context.Context, openid int) (a answer, err error) {
	if d.lock == lockNone {
		return d.lookAndMove(ctx, openid)
	}
	err = d.session.NewLock(lockName(openid)).Do(ctx, func(ctx context.Context) (err error) {
		a, err = d.lookAndMove(ctx, openid)
		return err
	})
	return a, err
}

// lookAndMove gives an openid a part if it has none. What lookAndMove reads stays true as long as no other request does the
// same for this openid.
func (d *desk) lookAndMove(ctx context.Context, openid int) (answer, error) {
	if a, err := d.packet.look(ctx, openid); a != ask || err != nil {
		return a, err
	}
	return d.packet.move(ctx, openid)
}
