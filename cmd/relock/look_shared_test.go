//go:build unix

package main

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant"
)

// sharedWaiters returns how many sessions wait for a read-write lock or a semaphore. It tries again if Redis does not
// reply in time.
func sharedWaiters(t *testing.T, s *reentrant.Session, name string) int {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		st, err := statusOf(t.Context(), s, name)
		if !errors.Is(err, reentrant.ErrUnavailable) || time.Now().After(end) {
			require.NoError(t, err)
			return len(st.Waiting)
		}
	}
}

// A reader that waits although others read waits behind a writer: which is which must be shown.
func TestInspectShowsWhatTheWaitersWant(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	a, writer, reader := session(t, url), session(t, url), session(t, url)
	require.NoError(t, a.NewRWLock("prices").RLock(t.Context()))
	require.NoError(t, a.NewSemaphore("jobs", 3).Acquire(t.Context(), 3))
	for i, wait := range []func(context.Context) error{writer.NewRWLock("prices").Lock, reader.NewRWLock("prices").RLock} {
		go func() { _ = wait(t.Context()) }() // ended at the end of the test
		eventually(t, func() bool { return sharedWaiters(t, a, "prices") == i+1 }, "it does not wait")
	}
	go func() { _ = writer.NewSemaphore("jobs", 3).Acquire(t.Context(), 2) }()
	eventually(t, func() bool { return sharedWaiters(t, a, "jobs") == 1 }, "it does not wait")
	assert.Contains(t, look(t, 0, "inspect", "prices", "--redis", url), "\nwaiting  2 <session> (write) <session> (read)\n")
	assert.Contains(t, look(t, 0, "inspect", "jobs", "--redis", url), "\nwaiting  1 <session> (permits: 2)\n")
	assert.Contains(t, look(t, 0, "inspect", "prices", "--json", "--redis", url),
		`"waiters":[{"session":"<session>","mode":"write","permits":0},{"session":"<session>","mode":"read","permits":0}]`)
	assert.Contains(t, look(t, 0, "inspect", "jobs", "--json", "--redis", url),
		`"waiters":[{"session":"<session>","mode":"permits","permits":2}]`)
}

func TestInspectAndListShowSharedHolds(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	a, b, writer := session(t, url), session(t, url), session(t, url)
	for _, s := range []*reentrant.Session{a, b} {
		require.NoError(t, s.NewRWLock("prices").RLock(t.Context()))
	}
	go func() { _ = writer.NewRWLock("prices").Lock(t.Context()) }() // ended at the end of the test
	eventually(t, func() bool { return sharedWaiters(t, a, "prices") == 1 }, "the writer does not wait")
	require.NoError(t, writer.NewRWLock("table").Lock(t.Context()))
	require.NoError(t, a.NewSemaphore("jobs", 3).Acquire(t.Context(), 2))
	holdLock(t, a, "deploy", "one")

	assert.Equal(t, `name  prices
kind  rwlock
state  read-locked
session  <session>, read, lease <ttl>, since <time> (<age>)
session  <session>, read, lease <ttl>, since <time> (<age>)
last token  <token>
waiting  1 <session> (write)
`, look(t, 0, "inspect", "prices", "--redis", url))
	assert.Equal(t, `{"name":"table","locked":true,"owner":"","session":"","holds":1,"ttl_ms":<ttl>,"token":<token>,"waiting":[],"since":"<time>",`+
		`"kind":"rwlock","holders":[{"session":"<session>","mode":"write","permits":0,"ttl_ms":<ttl>,"since":"<time>"}],"waiters":[]}`+"\n",
		look(t, 0, "inspect", "table", "--json", "--redis", url))
	assert.Equal(t, `{"name":"jobs","locked":true,"owner":"","session":"","holds":2,"ttl_ms":<ttl>,"token":<token>,"waiting":[],"since":"<time>",`+
		`"kind":"semaphore","limit":3,"holders":[{"session":"<session>","mode":"permits","permits":2,"ttl_ms":<ttl>,"since":"<time>"}],"waiters":[]}`+"\n",
		look(t, 0, "inspect", "jobs", "--json", "--redis", url))
	assert.Equal(t, `NAME  OWNER  SESSION  HELD  HOLDS  LEASE  TOKEN  WAITING
deploy  ~one  <session>  <age>  1  <ttl>  <token>  0
jobs  2 of 3 permits held  <session>  <age>  2  <ttl>  <token>  0
prices  read-locked  2 sessions  <age>  2  <ttl>  <token>  1
table  write-locked  <session>  <age>  1  <ttl>  <token>  0
`, look(t, 0, "list", "--redis", url))
}

func TestWatchFollowsASemaphore(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	m := session(t, url).NewSemaphore("jobs", 3)
	require.NoError(t, m.Acquire(t.Context(), 2))
	r := start(t, url, "watch", "jobs", "--interval", "5ms")
	step := func(n int) {
		t.Helper()
		eventually(t, func() bool { return strings.Count(r.stdout.String(), "\n") >= n }, "the change is not printed")
	}
	step(1)
	require.NoError(t, m.Acquire(t.Context(), 1))
	step(2)
	r.signal(syscall.SIGINT)
	r.exits(0)
	assert.Equal(t, `<time>  2 of 3 permits held by session <session> (permits: 2) for <age>, last token <token>, 0 waiting
<time>  3 of 3 permits held by session <session> (permits: 3) for <age>, last token <token>, 0 waiting
`, even(r.stdout.String()))
}

func TestOnlyAChangeOfTheLeaseIsNoChange(t *testing.T) {
	seen := func(session string, lease time.Duration) status {
		return newSharedStatus("jobs", reentrant.SharedState{Kind: backend.Permits, Token: 1,
			Holders: []backend.SharedHolder{{Session: session, Units: 2, Limit: 3, TTL: lease}}})
	}
	assert.True(t, seen("a", 1*time.Second).same(seen("a", 2*time.Second)))
	assert.False(t, seen("a", time.Second).same(seen("b", time.Second)))
}

// A read-write lock has a lock of its own for the conditions of its write side. It is not listed.
func TestListLeavesOutTheLockOfConditions(t *testing.T) {
	t.Parallel()
	url := embedded(t)
	l := session(t, url).NewRWLock("{shop}table")
	require.NoError(t, l.Lock(t.Context()))
	_, err := l.NewCondition("full").AwaitFor(t.Context(), time.Millisecond)
	require.NoError(t, err)
	assert.Equal(t, `NAME  OWNER  SESSION  HELD  HOLDS  LEASE  TOKEN  WAITING
{shop}table  write-locked  <session>  <age>  1  <ttl>  <token>  0
`, look(t, 0, "list", "--all", "--redis", url))
}
