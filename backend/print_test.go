package backend_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/relock-go/relock/backend"
)

func TestAStateIsPrintedInOneLine(t *testing.T) {
	for want, s := range map[string]backend.State{
		"free, last token 0":                  {},
		"free, last token 7, 1 session waits": {Token: 7, Waiting: []string{"a"}},
		"held once by owner 18 of session a, token 7, lease ends in 8.2s": {
			Locked: true, Session: "a", Owner: "18", Holds: 1, TTL: 8200 * time.Millisecond, Token: 7},
		"kept by session a, token 7, lease ends in 2s, 1 session waits": {
			Locked: true, Session: "a", Owner: backend.LingeringOwner, Holds: 1, TTL: 2 * time.Second, Token: 7, Waiting: []string{"b"}},
		"taken until its lease ends though unlocked by owner 18 of session a, token 7, lease ends in 8.2s": {
			Locked: true, Unlocked: true, Session: "a", Owner: "18", Holds: 1, TTL: 8200 * time.Millisecond, Token: 7},
		`held 2 times by owner 18 of session a, note "release 4.2", token 7, without a lease, 3 sessions wait`: {
			Locked: true, Session: "a", Owner: "18", Holds: 2, TTL: -1, Token: 7, Note: "release 4.2", Waiting: []string{"b", "c", "d"}},
		`held once by owner "\x1b[2J" of session "a\n", note "\x1b", token 7, lease ends in 0s`: {
			Locked: true, Session: "a\n", Owner: "\x1b[2J", Holds: 1, Token: 7, Note: "\x1b"},
		`held once by owner "~two words" of session a, token 7, lease ends in 0s`: {Locked: true, Session: "a", Owner: "~two words", Holds: 1, Token: 7},
		"held once by owner 18 of session a for 0s, token 7, lease ends in 0s": {
			Locked: true, Session: "a", Owner: "18", Holds: 1, Token: 7, Since: time.Now().Add(time.Hour)},
		`held once by owner "" of session "\xff", token 0, lease ends in 0s`: {Locked: true, Session: "\xff", Holds: 1},
		"cannot be read: WRONGTYPE": {Err: errors.New("WRONGTYPE")},
	} {
		assert.Equal(t, want, s.String())
		assert.Equal(t, want, fmt.Sprint(s))
	}
}

// The holders are spelled as in errors and logs: reentrant.Holder has the same text.
func TestASharedStateIsPrintedInOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		since := time.Now()
		time.Sleep(1800 * time.Millisecond)
		for want, s := range map[string]backend.SharedState{
			"free, last token 0": {},
			"held by session a (write) for 1.8s, last token 7, 1 session waits": {Kind: backend.ReadWrite, Token: 7,
				Holders: []backend.SharedHolder{{Session: "a", Units: backend.AllUnits, Since: since}}, Waiting: []backend.SharedWaiter{{Session: "b"}}},
			`held by session a (read) for 1.8s and session "\x1b" (read), last token 7`: {Kind: backend.ReadWrite, Token: 7,
				Holders: []backend.SharedHolder{{Session: "a", Units: 1, Since: since}, {Session: "\x1b", Units: 1}}},
			"held by session a (permits: 2), last token 7, 2 sessions wait": {Kind: backend.Permits, Token: 7,
				Holders: []backend.SharedHolder{{Session: "a", Units: 2}}, Waiting: []backend.SharedWaiter{{}, {}}},
		} {
			assert.Equal(t, want, fmt.Sprint(s))
		}
	})
}
