// Package relockotel measures and traces the locks of package reentrant with OpenTelemetry.
//
//	Lock, Unlock, loss …       ┌─ Observer ─▶ histograms, counters, spans ─┐
//	──────────▶ reentrant.Session                                          ├─▶ your MeterProvider, TracerProvider
//	                           └─ Stats ◀─── asked when metrics are read ──┘
//
// One [Telemetry] serves all sessions of a process. [Telemetry.Observer] gets an event for every call that ends, with
// its duration and result. [Telemetry.Watch] reads a session's counters whenever metrics are read, which costs the
// locks nothing. Each works without the other, and they have no instrument in common.
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
// Each combination of attribute values is a time series that has to be stored. So there are few attributes: the result
// of a call, and the name of the lock only with [WithLockName]. Owners and tokens are never on a metric.
//
// # Traces
//
// A call that asks for a lock is a span, relock.acquire, below the span in the caller's context; the hold is another
// span beside it, relock.hold, linked to the first:
//
//	the caller's span     ├──────────────────────────────────────────┤
//	relock.acquire          ├─────────┤
//	relock.hold                       ├──────────────────────────┤
//
// There are spans only where the caller's own is sampled. A lock that is taken outside of any trace starts no trace: it
// would consist of one span without a context. The spans are created when the call has ended, so the spans of a Redis
// client are not below relock.acquire, but beside it.
package relockotel
