//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant"
)

// heldBy returns the status of a lock that a session has had for a while.
func heldBy(session, name string, waiting ...string) status {
	return newStatus(name, reentrant.State{Locked: true, Session: session, Owner: "1", Since: time.Now().Add(-time.Hour), Waiting: waiting})
}

func TestSessionsThatWaitForEachOtherAreACycle(t *testing.T) {
	t.Parallel()
	young := heldBy("x", "young 1", "y")
	young.Since = stampOf(time.Now())
	unlocked := heldBy("r", "kept until its end", "s")
	unlocked.Unlocked = true
	reads := func(name, waits string, readers ...string) status {
		st := reentrant.SharedState{Kind: backend.ReadWrite, Waiting: []backend.SharedWaiter{{Session: waits, Want: backend.AllUnits}}}
		for _, r := range readers {
			st.Holders = append(st.Holders, backend.SharedHolder{Session: r, Units: 1})
		}
		return newSharedStatus(name, st)
	}
	permits := newSharedStatus("permits", reentrant.SharedState{Kind: backend.Permits, Waiting: []backend.SharedWaiter{{Session: "p", Want: 1}},
		Holders: []backend.SharedHolder{{Session: "q", Units: 1, Limit: 2}}})
	locks := []status{
		heldBy("a", "one", "c"), heldBy("b", "two", "a"), heldBy("c", "three", "b", "d"), // a waits for b, that for c, that for a
		heldBy("d", "waits for the three"), heldBy("e", "twice", "e"),
		young, heldBy("y", "young 2", "x"),
		unlocked, heldBy("s", "free soon", "r"),
		heldBy("p", "has one of the permits", "q"), permits,
		heldBy("w", "lock", "r2"), reads("prices", "w", "r1", "r2"),
	}
	findCycles(locks)
	cycles := map[string][]string{}
	for _, s := range locks {
		if s.Cycle != nil {
			cycles[s.Name] = s.Cycle
		}
	}
	assert.Equal(t, map[string][]string{
		"one": {"one", "two", "three"}, "two": {"two", "three", "one"}, "three": {"three", "one", "two"},
		"lock": {"lock", "prices"}, "prices": {"prices", "lock"},
	}, cycles)
	var said bytes.Buffer
	sayCycles(locks, &said)
	assert.Equal(t, "relock: perhaps a deadlock: session a holds one and waits for two; session b holds two and waits for three; session c holds three and waits for one\n"+
		"relock: perhaps a deadlock: session w holds lock and waits for prices; session r2 holds prices and waits for lock\n", said.String())
}

func TestListNamesADeadlock(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	a, b := session(t, url), session(t, url)
	holdLock(t, a, "accounts", "a")
	holdLock(t, b, "orders", "b")
	holdLock(t, b, "alone", "b")
	for _, cross := range []struct {
		s           *reentrant.Session
		owner, name string
	}{{a, "a", "orders"}, {b, "b", "accounts"}} {
		go func() { _ = cross.s.NewLock(cross.name).Lock(reentrant.WithOwner(t.Context(), cross.owner)) }() // until the test ends
	}
	want := "relock: perhaps a deadlock: session " + a.ID() + " holds accounts and waits for orders; session " + b.ID() + " holds orders and waits for accounts\n"
	var stdout, stderr bytes.Buffer
	eventually(t, func() bool {
		stdout.Reset()
		stderr.Reset()
		execute([]string{"list", "--json", "--redis", url}, &stdout, &stderr)
		if !strings.Contains(stderr.String(), "deadlock") {
			time.Sleep(100 * time.Millisecond) // the holds are too young
		}
		return stderr.String() == want
	}, "the deadlock is not named")
	cycles := map[string][]string{}
	for line := range strings.Lines(stdout.String()) {
		var st status
		require.NoError(t, json.Unmarshal([]byte(line), &st))
		cycles[st.Name] = st.Cycle
	}
	assert.Equal(t, map[string][]string{"accounts": {"accounts", "orders"}, "orders": {"orders", "accounts"}, "alone": nil}, cycles)
}

// A session that keeps a lock for its next owner may have no owner that holds it.
func TestALockThatASessionKeepsIsShownAsKept(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	s := session(t, url, reentrant.WithCohort(), reentrant.WithLinger(time.Hour))
	holdLock(t, s, "deploy", "me")()
	assert.Equal(t, `name  deploy
state  kept for the owners of its session, until another session asks (WithLinger); one of them may have it
owner  *linger
session  <session>
holds  1
lease  <ttl>
token  <token>
since  <time> (<age>)
waiting  0
`, look(t, 0, "inspect", "deploy", "--redis", url))
	assert.Equal(t, `{"name":"deploy","locked":true,"kept":true,"owner":"*linger","session":"<session>","holds":1,"ttl_ms":<ttl>,`+
		`"token":<token>,"waiting":[],"since":"<time>"}`+"\n", look(t, 0, "inspect", "deploy", "--json", "--redis", url))
	assert.Contains(t, look(t, 0, "list", "--redis", url), "\ndeploy  kept  <session>  <age>  1  <ttl>  <token>  0\n")
	assert.Contains(t, look(t, exitUsage, "unlock", "deploy", "--redis", url), "lock deploy is kept by session <session> for <age>, 1 hold, token <token>, 0 waiting.")
	answered(t, url, "run", "deploy", "--", "true").exits(0) // it asks for the lock, and gets it
}
