package fence_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/fence"
	"github.com/relock-go/relock/fence/fencetest"
)

// A flaw is a rule that a resource in memory leaves out.
type flaw string

const (
	none        flaw = "none"
	needsHigh   flaw = "a new resource refuses low tokens"
	needsHigher flaw = "an equal token is refused"
	takesAny    flaw = "any token is accepted"
	hidesTokens flaw = "a refusal has no tokens"
	isNotStale  flaw = "a refusal is not ErrStale"
	writesAll   flaw = "a write that is refused writes"
	hidesReads  flaw = "a read does not show its token"
	rounds      flaw = "tokens are rounded"
	forgets     flaw = "a process that starts again has seen nothing"
	isText      flaw = "the data end with a line"
	takesZero   flaw = "0 is a token"
	takesLarge  flaw = "2^53 is a token"
	goesOn      flaw = "a context that has ended is not noticed"
	tooEarly    flaw = "a write shows its token before it fails"
	drops       flaw = "every other write is dropped"
)

// fails has the case of the suite that must fail with each flaw.
var fails = map[flaw]string{
	needsHigh: "AnyTokenIsTheFirst", needsHigher: "TokensThatDoNotFallAreAccepted", takesAny: "OlderTokensAreRefused",
	hidesTokens: "OlderTokensAreRefused", isNotStale: "OlderTokensAreRefused", writesAll: "OlderTokensAreRefused",
	hidesReads: "ReadingIsEnoughToRefuseOlderTokens", rounds: "TokensKeepAllTheirDigits",
	forgets: "TheLastTokenIsKeptOverARestart", isText: "DataAreBytes", takesZero: "WhatIsNoTokenIsRefused",
	takesLarge: "WhatIsNoTokenIsRefused", goesOn: "ACallThatIsCancelledChangesNothing",
	tooEarly: "AWriteThatFailsShowsNoToken", drops: "NoUpdateIsLostWithoutAnyLock",
}

// A cell is a resource in memory.
type cell struct {
	flaw flaw

	mu      sync.Mutex
	highest fence.Token // under mu, as what follows
	data    []byte
	broken  bool
	writes  int
}

func (c *cell) Read(ctx context.Context, token fence.Token) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.refuse(ctx, token); err != nil {
		return nil, err
	}
	if c.flaw != hidesReads {
		c.highest = token
	}
	return c.data, nil
}

func (c *cell) Write(ctx context.Context, token fence.Token, data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.refuse(ctx, token)
	if c.flaw == tooEarly && err == nil {
		c.highest = token
	}
	if err == nil && c.broken {
		err = errors.New("broken")
	}
	if err != nil && (c.flaw != writesAll || !errors.Is(err, fence.ErrStale)) {
		return err
	}
	c.writes++
	if c.flaw == drops && c.writes%2 == 0 {
		return nil
	}
	if c.flaw == isText {
		data, _, _ = bytes.Cut(data, []byte("\n"))
	}
	c.highest, c.data = token, data
	return err
}

// refuse is called under mu.
func (c *cell) refuse(ctx context.Context, token fence.Token) error {
	if err := ctx.Err(); err != nil && c.flaw != goesOn {
		return err
	}
	if token == 0 && c.flaw != takesZero || token >= 1<<53 && c.flaw != takesLarge {
		return errors.New("no token")
	}
	stale := token < c.highest
	switch c.flaw {
	case needsHigh:
		stale = token < 5
	case needsHigher:
		stale = token <= c.highest
	case takesAny:
		stale = false
	case rounds:
		stale = float32(token) < float32(c.highest)
	case takesZero:
		stale = stale && token != 0
	}
	switch {
	case !stale:
		return nil
	case c.flaw == hidesTokens:
		return fence.ErrStale
	case c.flaw == isNotStale:
		return errors.New("too late")
	}
	return &fence.StaleError{Resource: "the cell", Token: token, Highest: c.highest}
}

func (c *cell) fixture() fencetest.Fixture {
	return fencetest.Fixture{
		Open: func(testing.TB) fence.Resource {
			if c.flaw == forgets {
				c.highest = 0
			}
			return c
		},
		Break: func(testing.TB) func() {
			c.broken = true
			return func() { c.broken = false }
		},
	}
}

func TestAResourceThatIsRightPasses(t *testing.T) {
	fencetest.Run(t, func(*testing.T) fencetest.Fixture { return (&cell{flaw: none}).fixture() })
}

func TestEachFlawIsNoticed(t *testing.T) {
	for flaw, name := range fails {
		t.Run(string(flaw), func(t *testing.T) {
			all := fencetest.Cases()
			i := slices.IndexFunc(all, func(c fencetest.Case) bool { return c.Name == name })
			require.GreaterOrEqual(t, i, 0, "there is no case %s", name)
			failures := try(t, all[i], (&cell{flaw: flaw}).fixture())
			require.NotEmpty(t, failures, "%s passes", name)
			t.Log(failures[0])
		})
	}
}

func TestEachCaseNoticesAFlaw(t *testing.T) {
	for _, c := range fencetest.Cases() {
		found := false
		for _, name := range fails {
			found = found || name == c.Name
		}
		assert.True(t, found, c.Name)
	}
}

// try runs a case and returns its failures.
func try(t *testing.T, c fencetest.Case, f fencetest.Fixture) []string {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() { // FailNow ends this goroutine, not the test's
		defer close(done)
		c.Func(r, f)
	}()
	<-done
	return r.failures
}

// A recorder is a testing.TB whose failures do not fail the test.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	failures []string // under mu
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) FailNow() { runtime.Goexit() }
