package relockotel

import (
	"errors"

	"go.opentelemetry.io/otel/metric"
)

// buckets are the upper bounds, in seconds, of both histograms, so that the histograms can be compared. The lowest bound is
// a round trip to Redis, 10 s is the default lease, and the highest is for locks that people hold.
var buckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 600}

// instruments are all instruments. Those of the first group record events, those of the second read a session's
// counters.
type instruments struct {
	acquisitions metric.Int64Counter
	wait, hold   metric.Float64Histogram
	longWaits    metric.Int64Counter
	failures     metric.Int64Counter
	recoveries   metric.Int64Counter

	held, waiting                                metric.Int64ObservableUpDownCounter
	handoffs, yields, renewals, losses, commands metric.Int64ObservableCounter
}

// newInstruments registers all instruments with a meter.
func newInstruments(meter metric.Meter) (instruments, error) {
	m := maker{meter: meter}
	i := instruments{
		acquisitions: m.counter("relock.lock.acquisitions", "{acquisition}", "Calls that asked for a lock, by result."),
		wait:         m.histogram("relock.lock.wait.duration", "Duration of calls that asked for a lock, without re-entries."),
		hold:         m.histogram("relock.lock.hold.duration", "How long locks were held."),
		longWaits:    m.counter("relock.lock.long_waits", "{wait}", "Waits that became longer than the lease."),
		failures:     m.counter("relock.lock.renewal.failures", "{failure}", "Holds whose renewal began to fail."),
		recoveries:   m.counter("relock.lock.renewal.recoveries", "{recovery}", "Holds whose renewal worked again."),

		held:     m.level("relock.lock.held", "{lock}", "Locks held."),
		waiting:  m.level("relock.lock.waiting", "{owner}", "Owners that wait for a lock."),
		handoffs: m.observed("relock.lock.handoffs", "{handoff}", "Unlocks that kept the lock for the next owner of the process."),
		yields:   m.observed("relock.lock.yields", "{yield}", "Hand-overs to another process because the turn was over."),
		renewals: m.observed("relock.lock.renewals", "{renewal}", "Leases prolonged."),
		losses:   m.observed("relock.lock.losses", "{loss}", "Holds that ended before their owner gave them up."),
		commands: m.observed("relock.commands", "{command}", "Commands sent to the backend."),
	}
	return i, m.err
}

// observables returns the instruments that one callback reads.
func (i *instruments) observables() []metric.Observable {
	return []metric.Observable{i.held, i.waiting, i.handoffs, i.yields, i.renewals, i.losses, i.commands}
}

// A maker makes instruments and collects the errors.
type maker struct {
	meter metric.Meter
	err   error
}

func (m *maker) counter(name, unit, description string) metric.Int64Counter {
	c, err := m.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
	m.err = errors.Join(m.err, err)
	return c
}

func (m *maker) histogram(name, description string) metric.Float64Histogram {
	h, err := m.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description),
		metric.WithExplicitBucketBoundaries(buckets...))
	m.err = errors.Join(m.err, err)
	return h
}

// level makes an up-down counter: unlike a gauge's values, those of several processes may be summed.
func (m *maker) level(name, unit, description string) metric.Int64ObservableUpDownCounter {
	c, err := m.meter.Int64ObservableUpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
	m.err = errors.Join(m.err, err)
	return c
}

func (m *maker) observed(name, unit, description string) metric.Int64ObservableCounter {
	c, err := m.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
	m.err = errors.Join(m.err, err)
	return c
}
