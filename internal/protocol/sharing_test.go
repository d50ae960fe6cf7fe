package protocol

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/testsize"
)

// A history is a random sequence of what sessions of a shared name do. It also has what the sessions have learned from replies
// and messages.
type history struct {
	*Shared
	*rand.Rand
	kind     backend.ShareKind
	limit    int
	now      Instant
	last     map[string]backend.ShareRequest
	believed map[string]int // how many units each session believes it may keep
	granted  bool           // whether units were granted in the last step
	log      strings.Builder
}

func newHistory(seed uint64) *history {
	h := &history{Rand: rand.New(rand.NewPCG(seed, 0)), kind: backend.ReadWrite, limit: backend.AllUnits, now: time.Second,
		last: map[string]backend.ShareRequest{}, believed: map[string]int{}}
	if seed%2 == 0 {
		h.kind, h.limit = backend.Permits, 6
	}
	h.Shared = &Shared{Name: "shared", Keep: 10 * time.Second, Publish: func(session string, m Message) {
		h.believed[session], h.granted = m.May, h.granted || m.Kind == SharedGrant
		fmt.Fprintf(&h.log, "  to %s: %+v\n", session, m)
	}}
	return h
}

func pick[T any](h *history, of ...T) T { return of[h.IntN(len(of))] }

// step lets time pass. Then either one of four sessions sends a new request or repeats its last one, or all sessions lose what
// they have.
func (h *history) step() {
	h.now += pick[Instant](h, 0, time.Millisecond, 20*time.Millisecond, 400*time.Millisecond, 1500*time.Millisecond)
	h.granted = false
	if h.IntN(25) == 0 {
		_, err := h.Force(h.now, h.now, h.kind)
		fmt.Fprintf(&h.log, "%v: force: %v\n", h.now, err)
		return
	}
	session := pick(h, "a", "b", "c", "d")
	req, again := h.last[session]
	if !again || h.IntN(3) > 0 {
		req = h.request(session, req.Epoch+1)
		h.last[session] = req
	}
	reply, err := h.Share(h.now, session, req, h.now, h.now+time.Second)
	fmt.Fprintf(&h.log, "%v: %s: %+v: %+v %v\n", h.now, session, req, reply, err)
	if err == nil && reply.Status != backend.StaleShare {
		h.believed[session] = reply.May
		h.granted = h.granted || req.Want > req.Keep && !reply.Placed
	}
}

// request returns a request of a new epoch.
func (h *history) request(session string, epoch uint64) backend.ShareRequest {
	req := backend.ShareRequest{Kind: h.kind, Epoch: epoch, Limit: h.limit, Tokens: 1, GrantTTL: 5 * time.Second,
		Lease: pick(h, time.Second, 20*time.Second), Patience: pick(h, time.Second, 20*time.Second)}
	if i := h.find(session); i >= 0 {
		e := &h.Entries[i]
		req.Under, req.Answer = e.Under, pick(h, 0, e.Asked)
		if e.Units > 0 {
			req.Keep = h.IntN(1 + min(e.Units, h.most()))
		}
	}
	req.Want = req.Keep
	if h.IntN(4) > 0 {
		req.Want += pick(h, 1, h.limit-req.Keep)
	}
	if h.kind == backend.ReadWrite && req.Want > 1 || req.Want > h.limit {
		req.Want = h.limit
	}
	req.Least = req.Want
	req.Try = req.Want > req.Keep && h.IntN(5) == 0
	return req
}

// most returns how many units a session may keep while it asks for more. A session that asks for the write side may keep at
// most the units of a reader.
func (h *history) most() int {
	if h.kind == backend.ReadWrite {
		return 1
	}
	return h.limit
}

// check returns what a session should know and does not know. queued reports whether a session waited before the step.
func (h *history) check(queued bool) string {
	head, may := h.head(), h.allowance(h.now)
	for i := range h.Entries {
		e := &h.Entries[i]
		knows := h.believed[e.Session]
		switch {
		case e.Units == 0 || e == head:
		case head != nil && e.Units > may && knows > may:
			return fmt.Sprintf("%s has %d units, may keep %d, and believes %d", e.Session, e.Units, may, knows)
		case head != nil && e.Units > h.Told && knows > h.Told:
			return fmt.Sprintf("%s believes that it may keep %d; the record says at most %d", e.Session, knows, h.Told)
		case head == nil && queued && !h.granted && knows < backend.Unlimited:
			return fmt.Sprintf("no session waits any more, and %s believes that it may keep %d", e.Session, knows)
		}
	}
	return ""
}

func TestHoldersKnowWhatTheyMayKeep(t *testing.T) {
	for seed := range uint64(testsize.Of(20000, 1000)) {
		h := newHistory(seed)
		for range 30 {
			queued := h.head() != nil
			h.step()
			require.Empty(t, h.check(queued), "seed %d:\n%s", seed, &h.log)
		}
	}
}
