// Package backendtest is the suite that every [backend.Backend] passes. It talks to a Backend as sessions do,
// through the verbs of its Conns and Remotes, and needs nothing else of it. [Run] has an example of a Backend's own
// test.
//
// Each case is a subtest with a Backend of its own, or with another client of the same deployment: cases use session
// ids and lock names of their own, and clean up by closing their Conns only.
//
// The cases are in areas, whose name is the first part of a case's name: Acquire, Reenter, Release, and so on for each verb
// and for what verbs have in common. [Cases] lists them all. The areas of optional interfaces
// ([backend.Conditions], [backend.Resumer], …) are skipped for a Remote without them. A case's name says what must be true. None
// measures speed, and none sleeps and hopes: what has to end is given a short lease and is then waited for, and what must
// not end has one that outlasts the case.
//
// mutants_test.go shows that the suite has teeth: each of a hundred Backends that get one thing wrong fails the case
// that is about it.
package backendtest
