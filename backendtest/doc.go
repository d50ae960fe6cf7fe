// Package backendtest is the suite that every [reentrant.Backend] passes. It talks to a Backend as sessions do,
// through the verbs of its Conns and Remotes, and needs nothing else of it. A Backend's own tests run it so:
//
//	func TestConformance(t *testing.T) {
//		backendtest.Run(t, func(t *testing.T) reentrant.Backend {
//			b := mybackend.New(…)
//			t.Cleanup(b.Close)
//			return b
//		})
//	}
//
// Each case is a subtest with a Backend of its own, or with a new client of the same deployment: cases use session ids
// and lock names that nobody else has, and clean up by closing their Conns only.
//
// A Backend without a network, whose waiting is all on channels, can be tested in virtual time with [InBubble].
//
// The cases are in areas, one file each: Acquire, Reenter, Release, Queue, Grant, Yield, Late, Renew, Token, Inspect,
// Force, Name, Conn and Together. A case's name says what must be true. None measures speed, and none sleeps and hopes:
// what has to end is given a lease of [short] and is then waited for, and what must not end has one that outlasts the
// case.
//
// mutants_test.go shows that the suite has teeth: each of some dozens of Backends that get one thing wrong fails the
// case that is about it.
package backendtest
