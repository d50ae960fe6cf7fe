package backendtest

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relock-go/relock/backend"
)

// A Case is one test of the suite.
type Case struct {
	Name string // the area and what must hold: Area/WhatMustBeTrue
	// Func tests a Backend. It reports failures to t only, and ends its goroutine after a failure.
	Func func(t testing.TB, b backend.Backend)
	_    struct{}
}

// An Option changes how Run runs the cases.
type Option func(*options)

type options struct {
	bubble   bool
	parallel bool
	brief    time.Duration
	skips    []skip
}

type skip struct{ reason, name string }

// InBubble runs each case in a testing/synctest bubble of its own, newBackend included.
func InBubble() Option { return func(o *options) { o.bubble = true } }

// InParallel runs the cases in parallel, because the suite mostly waits for leases to end.
func InParallel() Option { return func(o *options) { o.parallel = true } }

// Brief sets how long a lease lasts if a case waits for its end. The default is 150 ms. Brief is for a Backend whose waiting
// sessions, soon after they begin to wait, take a lock that has become free.
func Brief(d time.Duration) Option { return func(o *options) { o.brief = d } }

// Skip leaves out cases, or whole areas, that a Backend is not meant to pass. The output shows the reason.
func Skip(reason string, names ...string) Option {
	return func(o *options) {
		for _, name := range names {
			o.skips = append(o.skips, skip{reason, name})
		}
	}
}

// Run runs the suite. Each case is a subtest with a Backend that newBackend returns.
func Run(t *testing.T, newBackend func(t *testing.T) backend.Backend, opts ...Option) {
	t.Helper()
	o := options{brief: short}
	for _, opt := range opts {
		opt(&o)
	}
	for _, c := range testCases() {
		t.Run(c.name, func(t *testing.T) {
			if reason := o.skipped(c.name); reason != "" {
				t.Skip(reason)
			}
			if o.parallel {
				t.Parallel()
			}
			run := func(t *testing.T) { c.run(newTest(t, newBackend(t), o.brief)) }
			if o.bubble {
				synctest.Test(t, run)
			} else {
				run(t)
			}
		})
	}
}

// skipped returns why a case is left out. It returns "" if the case is run.
func (o *options) skipped(name string) string {
	for _, s := range o.skips {
		if name == s.name || strings.HasPrefix(name, s.name+"/") {
			return s.reason
		}
	}
	return ""
}

// Cases returns the whole suite, for a caller that wraps each case itself.
func Cases() []Case {
	var all []Case
	for _, c := range testCases() {
		all = append(all, Case{
			Name: c.name,
			Func: func(t testing.TB, b backend.Backend) { c.run(newTest(t, b, short)) },
		})
	}
	return all
}

func testCases() []testCase {
	return slices.Concat(acquireCases, reenterCases, releaseCases, staysCases, queueCases, grantCases, yieldCases, wantedCases, noteCases, resumeCases,
		lateCases, lateVerbCases, renewCases, tokenCases, inspectCases, forceCases, conditionCases, nameCases, connCases, togetherCases,
		priorCases, shareCases, shareTryCases, shareCopyCases, shareNoteCases)
}

// A testCase is a Case as the areas list it.
type testCase struct {
	name string
	run  func(t *test)
}
