package share

import (
	"fmt"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/sharedqueue"
)

// check looks at an answer where it comes in: one that cannot be is an error whose outcome is unknown, as if none had come.
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
	return backend.WithOutcomeUnknown(fmt.Errorf("the backend's answer cannot be: %+v", *r))
}

// possible reports whether a session can have so many units under such tokens.
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

// tier is what the local tier is told: a writer's block of tokens, or the token that readers' versions are above.
func (x terms) tier(until time.Duration) sharedqueue.Terms {
	t := sharedqueue.Terms{Units: x.units, Until: until}
	if x.units == sharedqueue.All {
		t.First, t.Last = uint64(x.first), uint64(x.last)
	} else {
		t.Token = uint64(x.first)
	}
	return t
}
