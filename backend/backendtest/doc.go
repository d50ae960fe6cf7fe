// Package backendtest is the suite that every [backend.Backend] passes. The suite uses a Backend as sessions do, through the
// verbs of its Conns and Remotes, and needs nothing else from the Backend. [Run] has an example of the test of a Backend.
//
// Each case is a subtest with a Backend of its own, or with another client of the same deployment: cases use session
// ids and lock names of their own, and clean up by closing their Conns only.
//
// The cases are grouped in areas. The area is the first part of a case's name: Acquire, Reenter, Release and so on. Each verb
// has an area, and there are others for properties of several verbs. [Cases] lists all cases. The areas of optional interfaces
// ([backend.Conditions], [backend.Resumer], …) are skipped for a Remote without them. A case's name states the property. No
// case measures speed or depends on it. A hold that has to end gets a short lease, and the case waits for its end. A hold that
// must not end gets a lease that outlasts the case.
//
// mutants_test.go tests the suite itself: each of a hundred Backends with one fault fails the case for that fault.
package backendtest
