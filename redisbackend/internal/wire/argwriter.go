package wire

import (
	"strconv"
	"time"

	"github.com/relock-go/relock/backend"
)

const (
	// maxNumbers is how many numbers the largest script of a single lock takes.
	maxNumbers = 10
	// maxDigits is the length of 18446744073709551615.
	maxDigits = 20
)

// An ArgWriter writes the numbers of one call into one buffer, which becomes one string; the arguments are its parts.
// So a call costs one allocation for all of them.
type ArgWriter struct {
	buf  [maxNumbers * maxDigits]byte
	ends [maxNumbers + 1]uint8 // ends[i] is where number i begins
	n    int
}

// Add appends a number.
func (w *ArgWriter) Add(number uint64) {
	end := len(strconv.AppendUint(w.buf[:w.ends[w.n]], number, 10))
	w.n++
	w.ends[w.n] = uint8(end)
}

// Strings returns the numbers as strings, in the order in which they were added.
func (w *ArgWriter) Strings() (numbers [maxNumbers]string) {
	text := string(w.buf[:w.ends[w.n]])
	for i := range w.n {
		numbers[i] = text[w.ends[i]:w.ends[i+1]]
	}
	return numbers
}

// Millis returns a duration in milliseconds, as Redis counts TTLs. It rounds up, so that Redis never ends a lease
// before its holder does.
func Millis(d time.Duration) uint64 { return RoundUp(d, time.Millisecond) }

// RoundUp returns d in units, rounded up; 0 if d is not positive.
func RoundUp(d, unit time.Duration) uint64 {
	if d <= 0 {
		return 0
	}
	return uint64((d-1)/unit) + 1
}

// MinKeep is the least time for which a lock's record outlives its last change: as long as a copy of an attempt that
// the record knows may still arrive, and as Redis's clock may be behind another node's after a failover. Twice a longer
// lease, so that the record outlives the hold. It costs some 280 bytes for a lock that is no longer used.
const MinKeep = 5 * time.Minute

// KeepFor returns how long to keep a record for a lease, in seconds.
func KeepFor(lease time.Duration) uint64 { return RoundUp(max(MinKeep, 2*lease), time.Second) }

// BriefKeep is MinKeep for a lock that was free and for which no session waited. Every name that is locked once leaves its
// record, so it is kept only as long as a copy of the attempt may still arrive, and as Redis's clock may be behind
// another node's.
const BriefKeep = 30 * time.Second

// BriefKeepFor returns how long to keep the record of such an attempt, in seconds.
func BriefKeepFor(req *backend.AcquireRequest) uint64 {
	return RoundUp(max(BriefKeep, 2*req.Lease, min(time.Until(req.NotAfter), MaxTTL)), time.Second)
}

// SharedKeepFor is KeepFor for a shared name, whose entries say themselves for how long they are needed: it is kept for no
// longer than that, so that the name is soon free for another kind of lock.
func SharedKeepFor(lease time.Duration) uint64 {
	return RoundUp(max(10*time.Second, lease), time.Second)
}

// Remaining returns the time until t, at least 0 and at most MaxTTL.
func Remaining(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return min(max(0, time.Until(t)), MaxTTL)
}
