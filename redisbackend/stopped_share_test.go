package redisbackend_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/redisbackend"
	lua "github.com/relock-go/relock/redisbackend/internal/wire"
	"github.com/relock-go/relock/redisbackend/redistest"
)

// The scripts of shared names, too, are stopped after each of their commands: see stopped_test.go.

const all = backend.AllUnits

// A crew has three sessions of one shared name.
type crew struct {
	*site
	stops   *stopper
	kind    backend.ShareKind
	limit   int           // the highest limit of any request
	last    backend.Token // the highest token with which a session has written
	a, b, c *sharer
}

// A sharer is a session of a crew. It learns about its units from replies alone, because a script that is stopped sends no
// message.
type sharer struct {
	*member
	crew   *crew
	epoch  uint64
	last   backend.ShareRequest
	under  backend.Token
	trusts int  // the units that the session may use, by the last reply
	placed bool // the session waits in the queue, by the last reply
	gone   bool // the session sends nothing any more
}

func crews(t *testing.T, client rueidis.Client) func(kind backend.ShareKind) *crew {
	stops := &stopper{Client: client}
	b, err := redisbackend.New(stops)
	require.NoError(t, err)
	s := &site{T: t, client: client, b: b, name: "shared"}
	members := []*member{s.join("a"), s.join("b"), s.join("c")}
	return func(kind backend.ShareKind) *crew {
		s.name = unique("shared")
		c := &crew{site: s, stops: stops, kind: kind, limit: all}
		for i, sh := range []**sharer{&c.a, &c.b, &c.c} {
			members[i].remote = members[i].bind(s.name)
			*sh = &sharer{member: members[i], crew: c}
		}
		return c
	}
}

func (c *crew) sharers() []*sharer { return []*sharer{c.a, c.b, c.c} }

// next makes the request of a new epoch. From then on the session no longer uses units that the request does not keep.
func (s *sharer) next(keep, want int, change ...func(*backend.ShareRequest)) backend.ShareRequest {
	s.epoch++
	s.last = sharing(s.epoch, keep, want)
	s.last.Kind, s.last.Limit, s.last.Under = s.crew.kind, s.crew.limit, s.under
	for _, f := range change {
		f(&s.last)
	}
	s.trusts = min(s.trusts, keep)
	return s.last
}

// send sends a copy of the session's last request.
func (s *sharer) send() error {
	s.last.NotAfter = time.Now().Add(time.Minute)
	s.last.Memory = s.last.NotAfter
	reply, err := s.share(s.last)
	if err != nil {
		return err
	}
	require.NotEqual(s, backend.StaleShare, reply.Status)
	if s.last.Keep == 0 || reply.Units == 0 {
		s.under = reply.First
	}
	if reply.Units == all && s.trusts < all {
		require.Greater(s, reply.First, s.crew.last, "tokens rise")
		s.crew.last = reply.First
	}
	s.trusts, s.placed = reply.Units, reply.Placed
	return nil
}

// asks sends a new request.
func (s *sharer) asks(keep, want int, change ...func(*backend.ShareRequest)) {
	s.Helper()
	s.next(keep, want, change...)
	require.NoError(s, s.send())
}

// tries sends a new request, whose script may be stopped. A second call with the same numbers sends a copy of the request.
func (s *sharer) tries(keep, want int, change ...func(*backend.ShareRequest)) error {
	if s.last.Keep != keep || s.last.Want != want {
		s.next(keep, want, change...)
	}
	return s.send()
}

func content(least int) func(*backend.ShareRequest) {
	return func(r *backend.ShareRequest) { r.Least = least }
}

func once(r *backend.ShareRequest) { r.Try = true }

func used(token backend.Token) func(*backend.ShareRequest) {
	return func(r *backend.ShareRequest) { r.Tail = token }
}

// waits reports whether the session wants more than it has.
func (s *sharer) waits() bool { return !s.gone && s.last.Want > s.last.Keep && s.trusts < s.last.Least }

// ends makes the leases and places of sessions end now. If forgotten is true, it also makes Redis forget the sessions: no copy
// of what they sent may arrive any more.
func (c *crew) ends(forgotten bool, sessions ...*sharer) {
	c.Helper()
	key := c.side("t")
	for _, s := range sessions {
		raw, err := c.do("HGET", key, s.id).ToString()
		if rueidis.IsRedisNil(err) {
			continue
		}
		require.NoError(c, err)
		words := strings.Fields(raw)
		words[2], words[10] = "1", "1" // until, deadline
		if forgotten {
			words[3] = "1" // memory
		}
		c.run("HSET", key, s.id, strings.Join(words, " "))
		s.trusts = 0
	}
	summary, err := c.do("HGET", key, "=").ToString()
	if rueidis.IsRedisNil(err) {
		return
	}
	require.NoError(c, err)
	words := strings.Fields(summary)
	words[5] = "0" // soonest
	c.run("HSET", key, "=", strings.Join(words, " "))
}

// A halfShare describes a run that is stopped, as halfRun does.
type halfShare struct {
	name   string // begins with the script's name and a space
	kind   backend.ShareKind
	golden func(*crew)
	act    func(*crew) error
	forces bool // the run takes units from sessions that use them
}

var halfShares = []halfShare{
	{name: "share that reads", act: func(c *crew) error { return c.a.tries(0, 1) }},
	{name: "share that reads beside readers", golden: func(c *crew) { c.b.asks(0, 1) }, act: func(c *crew) error { return c.a.tries(0, 1) }},
	{name: "share that reads behind a writer", golden: func(c *crew) { c.b.asks(0, 1); c.c.asks(0, all) },
		act: func(c *crew) error { return c.a.tries(0, 1) }},
	{name: "share that writes", act: func(c *crew) error { return c.a.tries(0, all) }},
	{name: "share that writes after readers", golden: func(c *crew) { c.b.asks(0, 1); c.c.asks(0, 1) },
		act: func(c *crew) error { return c.a.tries(0, all) }},
	{name: "share that writes after a forgotten reader", golden: func(c *crew) { c.c.asks(0, 1); c.ends(true, c.c) },
		act: func(c *crew) error { return c.a.tries(0, all) }},
	{name: "share that writes after a forgotten writer", golden: func(c *crew) { c.b.asks(0, all); c.ends(true, c.b) },
		act: func(c *crew) error { return c.a.tries(0, all) }},
	{name: "share that writes after a reader whose lease ended", golden: func(c *crew) { c.b.asks(0, 1); c.c.asks(0, 1); c.ends(false, c.b, c.c) },
		act: func(c *crew) error { return c.a.tries(0, all) }},
	{name: "share that writes behind a forgotten waiter", golden: func(c *crew) { c.b.asks(0, 1); c.c.asks(0, all); c.ends(true, c.c) },
		act: func(c *crew) error { return c.a.tries(0, all) }},
	{name: "share that writes and keeps reading", golden: func(c *crew) { c.a.asks(0, 1); c.b.asks(0, 1) },
		act: func(c *crew) error { return c.a.tries(1, all) }},
	{name: "share that writes and goes on reading alone", golden: func(c *crew) { c.a.asks(0, 1) },
		act: func(c *crew) error { return c.a.tries(1, all) }},
	{name: "share that stops reading for a writer", golden: func(c *crew) { c.a.asks(0, 1); c.b.asks(0, all); c.c.asks(0, 1) },
		act: func(c *crew) error { return c.a.tries(0, 0) }},
	{name: "share that stops reading", golden: func(c *crew) { c.a.asks(0, 1) }, act: func(c *crew) error { return c.a.tries(0, 0) }},
	{name: "share that stops writing for readers", golden: func(c *crew) { c.a.asks(0, all); c.b.asks(0, 1); c.c.asks(0, 1) },
		act: func(c *crew) error { return c.a.tries(0, 0, used(c.a.under)) }},
	{name: "share that stops writing for a writer", golden: func(c *crew) { c.a.asks(0, all); c.b.asks(0, all); c.c.asks(0, 1) },
		act: func(c *crew) error { return c.a.tries(0, 0) }},
	{name: "share that writes again behind others", golden: func(c *crew) { c.a.asks(0, all); c.b.asks(0, all); c.c.asks(0, 1) },
		act: func(c *crew) error { return c.a.tries(0, all, used(c.a.under)) }},
	{name: "share that reads after writing", golden: func(c *crew) { c.a.asks(0, all); c.b.asks(0, 1); c.c.asks(0, all) },
		act: func(c *crew) error { return c.a.tries(1, 1) }},
	{name: "share that leaves the queue", golden: func(c *crew) { c.b.asks(0, 1); c.a.asks(0, all); c.c.asks(0, 1) },
		act: func(c *crew) error { return c.a.tries(0, 0) }},
	{name: "share that confirms", golden: func(c *crew) { c.a.asks(0, 1); c.b.asks(0, 1) }, act: func(c *crew) error { return c.a.send() }},
	{name: "share that confirms a grant", golden: func(c *crew) { c.b.asks(0, all); c.a.asks(0, all); c.b.asks(0, 0) },
		act: func(c *crew) error { return c.a.send() }},
	{name: "share that beats as the head", golden: func(c *crew) { c.b.asks(0, 1); c.a.asks(0, all); c.c.asks(0, 1) },
		act: func(c *crew) error { return c.a.send() }},
	{name: "share that beats behind", golden: func(c *crew) { c.b.asks(0, all); c.c.asks(0, all); c.a.asks(0, all) },
		act: func(c *crew) error { return c.a.send() }},
	{name: "share that beats after leases", golden: func(c *crew) { c.b.asks(0, all); c.c.asks(0, 1); c.a.asks(0, 1); c.ends(true, c.b) },
		act: func(c *crew) error { return c.a.send() }},
	{name: "share of what is lost", golden: func(c *crew) { c.a.asks(0, 1); c.b.asks(0, all); c.ends(false, c.a) },
		act: func(c *crew) error { return c.a.tries(1, 1) }},
	{name: "share that tries to write", golden: func(c *crew) { c.b.asks(0, 1); c.c.asks(0, 1) },
		act: func(c *crew) error { return c.a.tries(0, all, once) }},
	{name: "share that tries behind others", golden: func(c *crew) { c.b.asks(0, 1); c.c.asks(0, all) },
		act: func(c *crew) error { return c.a.tries(0, 1, once) }},
	{name: "share that answers a try", golden: func(c *crew) { c.a.asks(0, 1); c.c.asks(0, 1); c.b.asks(0, all, once); c.c.asks(0, 0) },
		act: func(c *crew) error { return c.a.tries(0, 0) }},
	{name: "share that refuses a try", golden: func(c *crew) { c.a.asks(0, 1); c.b.asks(0, all, once); c.c.asks(0, 1) },
		act: func(c *crew) error {
			return c.a.tries(1, 1, func(r *backend.ShareRequest) { r.Answer = 1 })
		}},

	{name: "share of permits", kind: backend.Permits, golden: func(c *crew) { c.b.asks(0, 1) }, act: func(c *crew) error { return c.a.tries(0, 2) }},
	{name: "share of permits that are in use", kind: backend.Permits, golden: func(c *crew) { c.b.asks(0, 2); c.c.asks(0, 1) },
		act: func(c *crew) error { return c.a.tries(0, 3, content(1)) }},
	{name: "share of permits after forgotten ones", kind: backend.Permits, golden: func(c *crew) { c.b.asks(0, 2); c.c.asks(0, 1); c.ends(true, c.b, c.c) },
		act: func(c *crew) error { return c.a.tries(0, 3, content(1)) }},
	{name: "share that returns permits", kind: backend.Permits, golden: func(c *crew) { c.a.asks(0, 3); c.b.asks(0, 1); c.c.asks(0, 1) },
		act: func(c *crew) error { return c.a.tries(1, 1) }},
	{name: "share that returns permits and wants more", kind: backend.Permits, golden: func(c *crew) { c.a.asks(0, 2); c.b.asks(0, 2); c.c.asks(0, 1) },
		act: func(c *crew) error { return c.a.tries(1, 3) }},
	{name: "share that wants more permits", kind: backend.Permits, golden: func(c *crew) { c.a.asks(0, 1); c.b.asks(0, 1) },
		act: func(c *crew) error { return c.a.tries(1, 2) }},
	{name: "share of fewer permits", kind: backend.Permits, golden: func(c *crew) { c.b.asks(0, 2); c.c.asks(0, 2) },
		act: func(c *crew) error {
			return c.a.tries(0, 1, func(r *backend.ShareRequest) { r.Limit = 2 })
		}},

	{name: "share_renew", golden: func(c *crew) { c.a.asks(0, 1); c.b.asks(0, 1); c.c.asks(0, all) }, act: func(c *crew) error { return c.a.renewing() }},
	{name: "share_renew of permits", kind: backend.Permits, golden: func(c *crew) { c.a.asks(0, 2); c.b.asks(0, 1); c.c.asks(0, 1) },
		act: func(c *crew) error { return c.a.renewing() }},
	{name: "share_inspect", golden: func(c *crew) { c.b.asks(0, 1); c.c.asks(0, all) },
		act: func(c *crew) error { return second(c.a.remote.(backend.Sharer).InspectShared(c.ctx())) }},
	{name: "share_note", golden: func(c *crew) { c.a.asks(0, 1); c.b.asks(0, 1); c.c.asks(0, all) },
		act: func(c *crew) error {
			return second(c.a.remote.(backend.ShareNoter).NoteShared(c.ctx(), backend.NoteRequest{Epoch: c.a.epoch, Text: "why"}))
		}},
	{name: "share_force of readers", forces: true, golden: func(c *crew) { c.a.asks(0, 1); c.b.asks(0, 1); c.c.asks(0, all) }, act: forcing},
	{name: "share_force of a writer", forces: true, golden: func(c *crew) { c.a.asks(0, all); c.b.asks(0, 1); c.c.asks(0, 1) }, act: forcing},
	{name: "share_force of permits", forces: true, kind: backend.Permits, golden: func(c *crew) { c.a.asks(0, 2); c.b.asks(0, 1); c.c.asks(0, 2) }, act: forcing},
}

func forcing(c *crew) error {
	return second(c.a.remote.(backend.Sharer).ForceShared(c.ctx(), c.kind, time.Now().Add(time.Minute)))
}

// renewing sends only share_renew.lua. A backend sends this script in a pipeline, with other scripts.
func (s *sharer) renewing() error {
	script := lua.LoadScripts(lua.Variant{}).ShareRenew
	args := []string{s.id, text(int64(s.epoch)), text(int64(s.under)), text(lease.Milliseconds()), "60"}
	list, err := script.Exec(s.ctx(), s.crew.stops, []string{s.side("t")}, args).ToArray()
	if err != nil {
		return err
	}
	if words, err := list[1].ToString(); err == nil { // the script was stopped while it looked at this name
		return fmt.Errorf("share_renew: %s", words)
	}
	return nil
}

// given returns how many units each session has in Redis, and the sum of these.
func (c *crew) given() (by map[string]int, sum int) {
	c.Helper()
	st, err := c.a.remote.(backend.Sharer).InspectShared(c.ctx())
	require.NoError(c, err)
	by = map[string]int{}
	for _, h := range st.Holders {
		by[h.Session] = h.Units
		sum += h.Units
	}
	return by, sum
}

func TestAScriptOfASharedNameMayStopAfterEachOfItsCommands(t *testing.T) {
	t.Parallel()
	t.Run("embedded", func(t *testing.T) {
		onlyWithoutAServer(t)
		stopEachShare(t, redistest.Start(t).Client())
	})
	t.Run("redis", func(t *testing.T) { stopEachShare(t, realRedis(t).client) })
}

// sharesGoOn has the ways in which the sender may continue after its script was stopped.
var sharesGoOn = map[string]func(*crew, *halfShare){
	"sends it again": func(c *crew, h *halfShare) { require.NoError(c, h.act(c)) },
	"gives up":       func(c *crew, _ *halfShare) { c.a.asks(0, 0) },
	"dies":           func(c *crew, _ *halfShare) { c.a.gone = true },
}

// oneByOne makes the scripts write two fields with each command. Where a name has many sessions, the scripts write thousands of
// fields with each command.
var oneByOne = strings.NewReplacer("#changes > 4000", "#changes > 4", "i = 1, #arguments, 4000", "i = 1, #arguments, 4", "i + 3999", "i + 3")

func stopEachShare(t *testing.T, client rueidis.Client) {
	next := crews(t, client)
	scripts := lua.LoadScripts(lua.Variant{})
	all := map[string]lua.Script{"share": scripts.Share, "share_renew": scripts.ShareRenew, "share_note": scripts.ShareNote, "share_inspect": scripts.ShareInspect, "share_force": scripts.ShareForce}
	for _, h := range halfShares {
		t.Run(h.name, func(t *testing.T) {
			name, _, _ := strings.Cut(h.name+" ", " ")
			texts := []stopper{{text: oneByOne.Replace(all[name].Text)}} // it can stop where the script can, and in between
			if testsize.Full() {
				texts = append(texts, stopper{text: all[name].Text})
			}
			for _, script := range texts {
				script.sha = all[name].SHA
				for how, goOn := range sharesGoOn {
					for stopShareAfter(t, next(max(h.kind, backend.ReadWrite)), &h, script, how, goOn) {
						script.after += 1 + rand.IntN(testsize.Of(1, 5))
					}
					assert.Positive(t, script.after, "the script runs")
					script.after = 0
					if !testsize.Full() {
						break // by default only one way to go on, chosen by chance
					}
				}
			}
		})
	}
}

// Redis 6.2 has no command that makes a hash with an expiry. So a run that stops after its first write can leave a record that
// does not expire. The next run that gives out or renews units sets the expiry.
func TestEachRunGivesASharedNameItsExpiry(t *testing.T) {
	t.Parallel()
	next := crews(t, realRedis(t).client)
	for _, h := range halfShares {
		if h.golden == nil || h.name == "share_inspect" || h.name == "share_note" {
			continue
		}
		t.Run(h.name, func(t *testing.T) {
			c := next(max(h.kind, backend.ReadWrite))
			c.T = t
			if h.kind == backend.Permits {
				c.limit = 3
			}
			h.golden(c)
			c.run("PERSIST", c.side("t"))
			require.NoError(t, h.act(c))
			assert.Positive(t, must(c.do("PTTL", c.side("t")).ToInt64()), "the key expires")
		})
	}
}

// A session that sends no scripts may also find a record that does not expire. It does not give out units that other sessions
// have according to that record.
func TestWithoutScriptsARecordThatDoesNotExpireCounts(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		a, b := s.join("a"), s.withoutScripts().join("b")
		has, err := a.share(sharing(1, 0, 1))
		require.NoError(t, err)
		s.run("PERSIST", s.side("t"))
		st, err := b.remote.(backend.Sharer).InspectShared(b.ctx())
		require.NoError(t, err)
		require.Len(t, st.Holders, 1)
		assert.EqualValues(t, -1, must(s.do("PTTL", s.side("t")).ToInt64()), "to look changes nothing")
		reply, err := b.share(sharing(1, 0, all))
		require.NoError(t, err)
		assert.True(t, reply.Placed)
		assert.Zero(t, reply.Units)
		assert.Greater(t, must(s.do("PTTL", s.side("t")).ToInt64()), time.Minute.Milliseconds(), "the key expires after the lease")
		confirm := sharing(2, 1, 1)
		confirm.Under = has.First
		reply, err = a.share(confirm)
		require.NoError(t, err)
		assert.Equal(t, 1, reply.Units)
	})
}

// stopShareAfter stops a run after some commands, and then lets all sessions go on. It returns false if the script has ended
// before it could be stopped.
func stopShareAfter(t *testing.T, c *crew, h *halfShare, script stopper, how string, goOn func(*crew, *halfShare)) bool {
	site := *c.site
	site.T, c.site = t, &site
	if h.kind == backend.Permits {
		c.limit = 3
	}
	for _, s := range c.sharers() {
		s.site = &site
	}
	if h.golden != nil {
		h.golden(c)
	}
	failed := t.Failed()
	defer func() {
		if t.Failed() && !failed {
			t.Logf("stopped after %d commands; the sender %s", script.after, how)
		}
	}()
	c.stops.sha, c.stops.text, c.stops.after = script.sha, script.text, script.after
	err := h.act(c)
	c.stops.sha = ""
	if err == nil {
		return false
	}
	if !strings.HasPrefix(h.name, "share_renew") {
		require.True(t, backend.OutcomeUnknown(err), "%v", err)
		require.False(t, backend.Refused(err), "%v", err)
	}
	c.learns(h)
	c.within()
	goOn(c, h)
	c.learns(h)
	c.within()
	c.serves()
	return true
}

// learns makes sessions stop using the units that they have lost, as renewals do.
func (c *crew) learns(h *halfShare) {
	by, _ := c.given()
	for _, s := range c.sharers() {
		if h.forces {
			s.trusts = min(s.trusts, by[s.id])
		}
	}
}

// within checks that sessions together use no more units than there are, and that Redis has all units that are in use.
func (c *crew) within() {
	c.Helper()
	by, given := c.given()
	used := 0
	for _, s := range c.sharers() {
		used += s.trusts
		require.GreaterOrEqual(c, by[s.id], s.trusts, "%s has what it uses", s.id)
	}
	require.LessOrEqual(c, used, c.limit, "units in use")
	require.LessOrEqual(c, given, c.limit, "units given out: %v", by)
}

// serves lets each session send a copy of its last request, and then give its units back, until no session waits. Then all
// units are free.
func (c *crew) serves() {
	c.Helper()
	for leases := 0; ; {
		waiting, served := 0, 0
		for _, s := range c.sharers() {
			if s.gone || s.epoch == 0 {
				continue
			}
			if s.waits() || s.trusts == 0 {
				require.NoError(c, s.send())
				c.within()
			}
			if s.waits() && !s.placed && !s.last.Try {
				s.asks(0, s.last.Want)
				c.within()
			}
			switch {
			case s.trusts > 0 && !s.waits():
				served++
				s.asks(0, 0)
				c.within()
			case s.waits() && !s.last.Try:
				waiting++
			}
		}
		if waiting == 0 && served == 0 {
			break
		}
		if served == 0 {
			leases++
			require.LessOrEqual(c, leases, mostLeases, "a waiter has lost its place")
			require.True(c, c.a.gone, "only the lease of a session that has gone keeps others waiting")
			c.ends(false, c.a)
		}
	}
	if c.a.gone {
		c.ends(false, c.a)
	}
	c.b.asks(0, c.limit)
	require.Equal(c, c.limit, c.b.trusts, "all units are free")
	require.Positive(c, must(c.do("PTTL", c.side("t")).ToInt64()), "the key expires")
	c.b.asks(0, 0)
}
