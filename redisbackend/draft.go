package redisbackend

import (
	"strconv"
	"time"
)

const (
	// maxNumbers is how many numbers the largest script of a single lock takes.
	maxNumbers = 9
	// maxDigits is the length of 18446744073709551615.
	maxDigits = 20
)

// A draft writes the numbers of one call: into one buffer, which becomes one string, of which the arguments are
// parts. So a call costs one allocation for all of them.
type draft struct {
	buf  [maxNumbers * maxDigits]byte
	ends [maxNumbers + 1]uint8 // ends[i] is where number i begins
	n    int
}

func (d *draft) add(number uint64) {
	end := len(strconv.AppendUint(d.buf[:d.ends[d.n]], number, 10))
	d.n++
	d.ends[d.n] = uint8(end)
}

// cut gives the numbers out as strings, in the order in which they were added.
func (d *draft) cut() (numbers [maxNumbers]string) {
	text := string(d.buf[:d.ends[d.n]])
	for i := range d.n {
		numbers[i] = text[d.ends[i]:d.ends[i+1]]
	}
	return numbers
}

// millis is a duration as Redis counts TTLs: rounded up, so that Redis never ends one before its holder does.
func millis(d time.Duration) uint64 { return roundUp(d, time.Millisecond) }

func roundUp(d, unit time.Duration) uint64 {
	if d <= 0 {
		return 0
	}
	return uint64((d-1)/unit) + 1
}

// minKeep is for how long a lock's record outlives its last change at the least: as long as anybody may come back
// with an attempt that it knows of, and as Redis's clock may be behind another node's after a failover. Twice a
// longer lease, so that the record outlives the hold. It costs some 150 bytes for a lock that nobody uses any more.
const minKeep = 5 * time.Minute

// keepFor is the time that a record is kept, in seconds, for a lease.
func keepFor(lease time.Duration) uint64 { return roundUp(max(minKeep, 2*lease), time.Second) }

// left is how long it is to t, if anything; maxTTL at most.
func left(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return min(max(0, time.Until(t)), maxTTL)
}
