package share

import (
	"fmt"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/sharedqueue"
)

// check validates a reply as it comes in. An impossible reply is an error with an unknown outcome, as if no reply had
// come.
func check(req *backend.ShareRequest, r *backend.ShareReply) error {
	ok := false
	switch r.Status {
	case backend.StaleShare:
		ok = r.Epoch > req.Epoch
	case backend.ShareLost:
		ok = true
	case backend.Shared:
		ok = possible(req.Kind, r.Units, r.First, r.Last) && r.Units <= req.Want
	}
	if ok {
		return nil
	}
	return backend.WithOutcomeUnknown(fmt.Errorf("the backend's reply cannot be right: %+v", *r))
}

// possible reports whether a session can have this many units under these tokens.
func possible(kind backend.ShareKind, units int, first, last backend.Token) bool {
	switch {
	case units == 0:
		return true
	case units < 0 || first == 0 || last < first:
		return false
	case kind == backend.ReadWrite:
		return units == 1 && first == last || units == backend.AllUnits
	}
	return true
}

// tier converts x for the local tier: a writer gets its block of tokens, readers the last token that a writer used.
func (x terms) tier(until time.Duration) sharedqueue.Terms {
	t := sharedqueue.Terms{Units: x.units, Until: until}
	if x.units == sharedqueue.All {
		t.First, t.Last = uint64(x.first), uint64(x.last)
	} else {
		t.Token = uint64(x.first)
	}
	return t
}
