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

// A shareMail keeps the messages about shared names that a mailbox receives.
type shareMail struct {
	mu     sync.Mutex
	grants []backend.ShareGrant
	wanted map[string]ask // by name
}

// An ask is what messages have told a session about other sessions that want units.
type ask struct {
	count int    // the number of messages
	may   int    // the units that the session may keep, by the last message
	try   uint64 // the number of the last try that asked the session
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

// SharedWanted keeps what the message says.
func (m *mailbox) SharedWanted(name string, may int, try uint64) {
	m.shares.mu.Lock()
	defer m.shares.mu.Unlock()
	if m.shares.wanted == nil {
		m.shares.wanted = make(map[string]ask)
	}
	last := m.shares.wanted[name]
	if try == 0 {
		try = last.try
	}
	m.shares.wanted[name] = ask{last.count + 1, may, try}
}

// grant returns the grant of an epoch, if it has arrived.
func (m *shareMail) grant(name string, epoch uint64) (g backend.ShareGrant, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.grants, func(g backend.ShareGrant) bool { return g.Name == name && g.Epoch == epoch })
	if i < 0 {
		return g, false
	}
	return m.grants[i], true
}

// asked returns what other sessions have asked of this one, by the messages about a name.
func (m *shareMail) asked(name string) ask {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wanted[name]
}

// A sharer is a session and its state of the only shared name in a case.
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
			t.Skip("the Remote does not support shared names")
		}
		all = append(all, s)
	}
	return all
}

// readers returns sessions with one unit each, in the order of their replies.
func (t *test) readers(n int) []*sharer {
	t.Helper()
	list := t.sharers(n)
	for _, s := range list {
		require.Equal(t, 1, s.read(0).Units)
	}
	return list
}

// A shareWith changes one thing in a request.
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
func try(r *backend.ShareRequest)        { r.Try = true }
func answer(try uint64) shareWith        { return func(r *backend.ShareRequest) { r.Answer = try } }

// next makes the request of a new epoch.
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

// send sends a copy of a request, which may arrive until limit from now. The Backend must remember the session for longer than
// a case takes on a slow machine, unless the request says until when it may arrive.
func (s *sharer) send(req backend.ShareRequest) (backend.ShareReply, error) {
	memory := req.NotAfter
	if req.NotAfter.IsZero() {
		req.NotAfter, memory = time.Now().Add(limit), time.Now().Add(long)
	}
	if memory.After(s.memory) {
		s.memory = memory
	}
	req.Memory = s.memory
	ctx, cancel := context.WithTimeout(s.t.Context(), limit)
	defer cancel()
	return s.raw.(backend.Sharer).Share(ctx, req)
}

// say sends a copy that must succeed. If the copy is of the last epoch, and this epoch keeps no units, say stores the token of
// the new units.
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

// read asks for 1 unit in total, and keeps the given number of units.
func (s *sharer) read(keep int, changes ...shareWith) backend.ShareReply {
	s.t.Helper()
	return s.say(s.next(backend.ReadWrite, all, keep, 1, changes))
}

// write asks for all units, and keeps the given number of units.
func (s *sharer) write(keep int, changes ...shareWith) backend.ShareReply {
	s.t.Helper()
	return s.say(s.next(backend.ReadWrite, all, keep, all, changes))
}

// keep gives back all units but n, and asks for no others.
func (s *sharer) keep(n int, changes ...shareWith) backend.ShareReply {
	s.t.Helper()
	return s.say(s.next(s.last.Kind, s.last.Limit, n, n, changes))
}

// borrow asks for want permits in total, of which one is enough.
func (s *sharer) borrow(limit, keep, want int, changes ...shareWith) backend.ShareReply {
	s.t.Helper()
	return s.say(s.next(backend.Permits, limit, keep, want, append([]shareWith{least(1)}, changes...)))
}

// placed requires that a reply says that the session waits in the queue.
func (s *sharer) placed(reply backend.ShareReply) {
	s.t.Helper()
	require.True(s.t, reply.Placed, "%+v", reply)
}

// news waits for the message that ends the wait of the last epoch. If the channel was reopened meanwhile, news sends a copy of
// the request, whose reply stands for the message.
func (s *sharer) news() backend.ShareGrant {
	s.t.Helper()
	var g backend.ShareGrant
	mark := s.mail.resumed()
	s.t.eventually("the session's wait ends", func() bool {
		var ok bool
		if g, ok = s.mail.shares.grant(s.t.name, s.epoch); !ok && s.mail.resumed() != mark {
			r := s.again()
			g, ok = backend.ShareGrant{Name: s.t.name, Epoch: s.epoch, Units: r.Units, First: r.First, Last: r.Last, May: r.May}, !r.Placed
		}
		return ok
	})
	return g
}

// granted waits for the message that grants the last epoch.
func (s *sharer) granted(units int) backend.ShareGrant {
	s.t.Helper()
	g := s.news()
	require.Equal(s.t, units, g.Units)
	if s.last.Keep == 0 {
		s.under = g.First
	}
	return g
}

// refused waits for the message that refuses the last epoch, which is a try. The session then has the given number of
// units.
func (s *sharer) refused(units int) {
	s.t.Helper()
	require.Less(s.t, units, s.last.Least)
	require.Equal(s.t, units, s.news().Units)
	reply := s.again()
	require.False(s.t, reply.Placed, "a copy of a try that was refused")
	require.Equal(s.t, units, reply.Units)
}

// wanted waits for a message that lets the session keep at most may units. Calling again causes such a message: wanted calls it
// repeatedly until the message has come.
func (s *sharer) wanted(may int, again func() backend.ShareReply) {
	s.t.Helper()
	s.t.eventually("the session is asked for its units", func() bool {
		if a := s.mail.shares.asked(s.t.name); a.count > 0 && a.may <= may {
			return true
		}
		again()
		return false
	})
}

// heardMore waits until the number of times that the session was asked is higher than before. Calling again causes a message:
// heardMore calls it repeatedly until then.
func (s *sharer) heardMore(before int, again func() backend.ShareReply) {
	s.t.Helper()
	s.t.eventually("the session is asked", func() bool {
		if s.mail.shares.asked(s.t.name).count > before {
			return true
		}
		again()
		return false
	})
}

// ifLost returns a function that calls again only if the channel was reopened after the call of ifLost, because then a message
// may be lost.
func (s *sharer) ifLost(again func() backend.ShareReply) func() backend.ShareReply {
	mark := s.mail.resumed()
	return func() (reply backend.ShareReply) {
		if s.mail.resumed() != mark {
			reply = again()
		}
		return reply
	}
}

// asked waits for the message in which a try with a number above older asks the session, and returns the try's number. Calling
// again causes the message: asked calls it if the channel was reopened meanwhile.
func (s *sharer) asked(older uint64, again func() backend.ShareReply) (try uint64) {
	s.t.Helper()
	again = s.ifLost(again)
	s.t.eventually("a try asks the session", func() bool {
		if try = s.mail.shares.asked(s.t.name).try; try > older {
			return true
		}
		again()
		return false
	})
	return try
}

// relieved waits for the message that the session may keep any number of units. If the channel is reopened, relieved stops
// waiting, because the message may be lost.
func (s *sharer) relieved() {
	s.t.Helper()
	mark := s.mail.resumed()
	s.t.eventually("the session may keep all its units", func() bool {
		return s.mail.shares.asked(s.t.name).may == backend.Unlimited || s.mail.resumed() != mark
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
func (s *sharer) unitsOf(other *sharer) int {
	s.t.Helper()
	for _, h := range s.state().Holders {
		if h.Session == other.id {
			return h.Units
		}
	}
	return 0
}

// queued requires that the sessions whose places in the queue are alive are exactly these, in this order.
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

// soonQueued waits until the sessions whose places in the queue are alive are exactly these, in this order.
func (s *sharer) soonQueued(sessions ...*sharer) {
	s.t.Helper()
	s.t.eventually("the places of others end", func() bool {
		return slices.EqualFunc(s.state().Waiting, sessions, func(w backend.SharedWaiter, other *sharer) bool { return w.Session == other.id })
	})
}

// lapsed waits until a session has no units left.
func (s *sharer) lapsed(other *sharer) {
	s.t.Helper()
	s.t.eventually("the lease ends", func() bool { return s.unitsOf(other) == 0 })
}

// placeEnds waits until the place of another session has ended. The session still has its units.
func (s *sharer) placeEnds(other *sharer) {
	s.t.Helper()
	s.soonQueued()
	require.NotZero(s.t, s.unitsOf(other))
}

// renewShared renews the units of an epoch. It returns how many units there are, and whether they are gone.
func (s *sharer) renewShared(epoch uint64, under backend.Token, lease time.Duration) (units int, gone bool) {
	s.t.Helper()
	batch := []backend.Renewal{{Remote: s.raw, Epoch: epoch, Under: under, Lease: lease}}
	s.renewAll(batch)
	return batch[0].Units, batch[0].Gone
}
