package backendtest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

const all = backend.AllUnits

// A shareMail keeps a mailbox's messages about shared names.
type shareMail struct {
	mu     sync.Mutex
	grants []backend.ShareGrant
	wanted map[string]int // name -> how many units the session may keep, by the last message
}

// Shared keeps the grant.
func (m *mailbox) Shared(g backend.ShareGrant) {
	m.shares.mu.Lock()
	m.shares.grants = append(m.shares.grants, g)
	m.shares.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wakeLocked()
}

// SharedWanted keeps the number of units that the session may keep.
func (m *mailbox) SharedWanted(name string, may int) {
	m.shares.mu.Lock()
	defer m.shares.mu.Unlock()
	if m.shares.wanted == nil {
		m.shares.wanted = make(map[string]int)
	}
	m.shares.wanted[name] = may
}

// grant returns the grant of an epoch, if it came.
func (m *shareMail) grant(name string, epoch uint64) (g backend.ShareGrant, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.grants, func(g backend.ShareGrant) bool { return g.Name == name && g.Epoch == epoch })
	if i < 0 {
		return g, false
	}
	return m.grants[i], true
}

// may returns how many units of a name the session may keep, by the last message.
func (m *shareMail) may(name string) (int, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	may, ok := m.wanted[name]
	return may, ok
}

// A sharer is a session with its state of the one shared name that a case is about.
type sharer struct {
	*session
	epoch  uint64
	last   backend.ShareRequest // the request of the last epoch
	under  backend.Token
	memory time.Time
}

func (t *test) sharers(n int) (all []*sharer) {
	t.Helper()
	for range n {
		s := &sharer{session: t.connect()}
		if _, ok := s.raw.(backend.Sharer); !ok {
			t.Skip("names are not shared")
		}
		all = append(all, s)
	}
	return all
}

// readers returns sessions that have 1 unit, in the order of the replies.
func (t *test) readers(n int) []*sharer {
	t.Helper()
	list := t.sharers(n)
	for _, s := range list {
		require.Equal(t, 1, s.read(0).Units)
	}
	return list
}

// A shareWith changes one thing of a request.
type shareWith func(*backend.ShareRequest)

func shareLease(d time.Duration) shareWith {
	return func(r *backend.ShareRequest) { r.Lease, r.GrantTTL = d, d }
}
func sharePatience(d time.Duration) shareWith {
	return func(r *backend.ShareRequest) { r.Patience = d }
}
func least(n int) shareWith              { return func(r *backend.ShareRequest) { r.Least = n } }
func block(n int) shareWith              { return func(r *backend.ShareRequest) { r.Tokens = n } }
func tail(token backend.Token) shareWith { return func(r *backend.ShareRequest) { r.Tail = token } }

// next is the request of a new epoch.
func (s *sharer) next(kind backend.ShareKind, limit, keep, want int, changes []shareWith) backend.ShareRequest {
	s.epoch++
	s.last = backend.ShareRequest{
		Kind: kind, Epoch: s.epoch, Keep: keep, Want: want, Least: want, Limit: limit, Under: s.under, Tokens: 1,
		Lease: long, GrantTTL: medium, Patience: long,
	}
	for _, change := range changes {
		change(&s.last)
	}
	return s.last
}

// send sends a copy of a request, as late as limit from now.
func (s *sharer) send(req backend.ShareRequest) (backend.ShareReply, error) {
	if req.NotAfter.IsZero() {
		req.NotAfter = time.Now().Add(limit)
	}
	if req.NotAfter.After(s.memory) {
		s.memory = req.NotAfter
	}
	req.Memory = s.memory
	ctx, cancel := context.WithTimeout(s.t.Context(), limit)
	defer cancel()
	return s.raw.(backend.Sharer).Share(ctx, req)
}

// say sends a copy that must not fail, and updates the state from the reply if that is about the last epoch.
func (s *sharer) say(req backend.ShareRequest) backend.ShareReply {
	s.t.Helper()
	reply, err := s.send(req)
	require.NoError(s.t, err, "Share")
	if reply.Status != backend.StaleShare && req.Epoch == s.epoch && s.last.Keep == 0 {
		s.under = reply.First
	}
	return reply
}

// again sends another copy of the last epoch.
func (s *sharer) again() backend.ShareReply {
	s.t.Helper()
	return s.say(s.last)
}

// read asks for 1 unit. It keeps the given number.
func (s *sharer) read(keep int, changes ...shareWith) backend.ShareReply {
	s.t.Helper()
	return s.say(s.next(backend.ReadWrite, all, keep, 1, changes))
}

// write asks for all units. It keeps the given number.
func (s *sharer) write(keep int, changes ...shareWith) backend.ShareReply {
	s.t.Helper()
	return s.say(s.next(backend.ReadWrite, all, keep, all, changes))
}

// keep gives back all units but n, and asks for none.
func (s *sharer) keep(n int, changes ...shareWith) backend.ShareReply {
	s.t.Helper()
	return s.say(s.next(s.last.Kind, s.last.Limit, n, n, changes))
}

// borrow asks for permits: content with one.
func (s *sharer) borrow(limit, keep, want int, changes ...shareWith) backend.ShareReply {
	s.t.Helper()
	return s.say(s.next(backend.Permits, limit, keep, want, append([]shareWith{least(1)}, changes...)))
}

// placed requires that a reply gives a place.
func (s *sharer) placed(reply backend.ShareReply) {
	s.t.Helper()
	require.True(s.t, reply.Placed, "%+v", reply)
}

// granted waits for the message that the last epoch was granted. If the channel was reopened meanwhile, it sends a copy
// instead.
func (s *sharer) granted(units int) backend.ShareGrant {
	s.t.Helper()
	var g backend.ShareGrant
	mark := s.mail.resumed()
	s.t.eventually("the session gets its units", func() bool {
		var ok bool
		if g, ok = s.mail.shares.grant(s.t.name, s.epoch); !ok && s.mail.resumed() != mark {
			r := s.again()
			g, ok = backend.ShareGrant{Name: s.t.name, Epoch: s.epoch, Units: r.Units, First: r.First, Last: r.Last, May: r.May}, !r.Placed
		}
		return ok
	})
	require.Equal(s.t, units, g.Units)
	if s.last.Keep == 0 {
		s.under = g.First
	}
	return g
}

// wanted waits for the message that the session may keep at most may units. It calls again to cause the message.
func (s *sharer) wanted(may int, again func() backend.ShareReply) {
	s.t.Helper()
	s.t.eventually("the session is asked for its units", func() bool {
		if got, ok := s.mail.shares.may(s.t.name); ok && got == may {
			return true
		}
		again()
		return false
	})
}

func (s *sharer) state() backend.SharedState {
	s.t.Helper()
	ctx, cancel := s.command()
	defer cancel()
	st, err := s.raw.(backend.Sharer).InspectShared(ctx)
	require.NoError(s.t, err, "InspectShared")
	return st
}

// unitsOf returns how many units a session has, as another session sees it.
func (s *sharer) unitsOf(who *sharer) int {
	s.t.Helper()
	for _, h := range s.state().Holders {
		if h.Session == who.id {
			return h.Units
		}
	}
	return 0
}

// queued requires that these sessions have the live places, in this order.
func (s *sharer) queued(sessions ...*sharer) {
	s.t.Helper()
	want, got := []string{}, []string{}
	for _, w := range sessions {
		want = append(want, w.id)
	}
	for _, w := range s.state().Waiting {
		got = append(got, w.Session)
	}
	require.Equal(s.t, want, got, "sessions in the queue")
}

// lapsed waits until a session has no units any more.
func (s *sharer) lapsed(who *sharer) {
	s.t.Helper()
	s.t.eventually("the lease ends", func() bool { return s.unitsOf(who) == 0 })
}

// renewShared prolongs the units of an epoch, and returns how many they are.
func (s *sharer) renewShared(epoch uint64, under backend.Token, lease time.Duration) (units int, gone bool) {
	s.t.Helper()
	batch := []backend.Renewal{{Remote: s.raw, Epoch: epoch, Under: under, Lease: lease}}
	s.renewAll(batch)
	return batch[0].Units, batch[0].Gone
}
