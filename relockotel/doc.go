// Package relockotel measures and traces the locks of package reentrant with OpenTelemetry.
//
//	Lock, Unlock, loss …       ┌─ Observer ─▶ histograms, counters, spans ─┐
//	──────────▶ reentrant.Session                                          ├─▶ your MeterProvider, TracerProvider
//	                           └─ Stats ◀─── asked when metrics are read ──┘
//
// One [Telemetry] serves all sessions of a process. [Telemetry.Observer] is told of every call as it ends: it knows how
// long it took and what came of it. [Telemetry.Watch] reads a session's counters whenever metrics are read, which costs
// the locks nothing. Each works without the other, and they have no instrument in common.
//
// docs/metrics.md lists the instruments and what to alert on.
//
// # Names
//
// Names follow OpenTelemetry's conventions: lower case, dots for namespaces, the unit beside the name and not in it,
// seconds for time, plurals for what is counted, and ".duration" for histograms of time. relock is the namespace, so that
// no name can collide with one that the conventions will define.
//
// # Attributes
//
// Each combination of attribute values is a time series that somebody has to store. So there are few of them: the result
// of a call, and the name of the lock only for who asks for it with [WithLockName]. Owners and tokens are never on a
// metric.
//
// # Traces
//
// A call that asks for a lock is a span, relock.acquire, below the span in the caller's context; what it held is another
// one beside it, relock.hold, linked to the first:
//
//	the caller's span     ├──────────────────────────────────────────┤
//	relock.acquire          ├─────────┤
//	relock.hold                       ├──────────────────────────┤
//
// There are spans only where the caller's own is sampled. A lock taken outside of any trace starts none: it would be a
// trace of one span that belongs to nothing. The spans are made when the call has ended, so what a Redis client traces
// is not below relock.acquire, but beside it.
package relockotel
