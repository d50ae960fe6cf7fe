package wire

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/protocol"
)

// The bounds of the numbers in requests and replies, with and without scripts. A request out of bounds is refused
// before it is sent.

const (
	// maxNumber is the highest number that Lua counts to in steps of one, for epochs, operations and tickets.
	maxNumber = 1<<53 - 1
	// maxHolds is the highest hold count, as in package reentrant.
	maxHolds = math.MaxInt32
	// MaxTTL is the maximum of leases, patiences and doubts: longer ones are cut. 2*MaxTTL does not overflow.
	MaxTTL = 30 * 365 * 24 * time.Hour
)

// CheckNumbers refuses epochs, operations and tickets that Lua would round.
func CheckNumbers(numbers ...uint64) error {
	for _, n := range numbers {
		if n > maxNumber {
			return Invalid(fmt.Sprintf("%d: epochs, operations and tickets are less than 2^53", n))
		}
	}
	return nil
}

// countable returns the token to send in place of t: at most the highest number that Lua can count. No server gives out a
// higher token.
func countable(t backend.Token) backend.Token {
	return min(t, maxNumber)
}

func checkHolds(holds int) error {
	if holds < 1 || holds > maxHolds {
		return Invalid(fmt.Sprintf("the hold count must be within 1 and %d", maxHolds))
	}
	return nil
}

// CheckAcquire refuses a request for a hold or a place that would expire at once, and numbers out of bounds.
func CheckAcquire(req *backend.AcquireRequest) error {
	switch {
	case req.Tokens < 1 || req.Tokens > protocol.MaxBlock:
		return Invalid(fmt.Sprintf("the number of tokens must be within 1 and %d", protocol.MaxBlock))
	case req.Lease <= 0:
		return Invalid("the lease must be positive")
	case req.Queue && (req.Patience <= 0 || req.GrantTTL <= 0):
		return Invalid("a waiter's patience and grant TTL must be positive")
	}
	req.Lease, req.Patience, req.GrantTTL = min(req.Lease, MaxTTL), min(req.Patience, MaxTTL), min(req.GrantTTL, MaxTTL)
	req.Seen = countable(req.Seen)
	if err := checkHolds(req.Holds); err != nil {
		return err
	}
	return CheckNumbers(req.Epoch)
}

// CheckReenter refuses numbers out of bounds, and cuts a lease that Redis cannot count.
func CheckReenter(req *backend.ReenterRequest) error {
	req.Lease = min(req.Lease, MaxTTL)
	if err := checkHolds(req.Holds); err != nil {
		return err
	}
	return CheckNumbers(req.Epoch, req.Op)
}

// CheckRelease refuses numbers out of bounds.
func CheckRelease(req *backend.ReleaseRequest) error {
	req.Used = countable(req.Used)
	return CheckNumbers(req.Epoch)
}

// CheckResume refuses a request for a hold that would expire at once, and numbers out of bounds.
func CheckResume(req *backend.ResumeRequest) error {
	if req.Lease <= 0 {
		return Invalid("the lease must be positive")
	}
	req.Lease, req.Seen = min(req.Lease, MaxTTL), countable(req.Seen)
	return CheckNumbers(req.Epoch)
}

// CheckNote refuses a note that is too long.
func CheckNote(req *backend.NoteRequest) error {
	if len(req.Text) > backend.MaxNote {
		return Invalid("the note must have no more than 256 bytes")
	}
	return CheckNumbers(req.Epoch)
}

// CheckRenewal refuses a renewal that would end a hold at once, and numbers out of bounds.
func CheckRenewal(r *backend.Renewal) error {
	if r.Lease <= 0 {
		return Invalid("the lease must be positive")
	}
	return CheckNumbers(r.Epoch)
}

// CheckAwait refuses a request for a ticket that would expire at once, and numbers out of bounds.
func CheckAwait(req *backend.AwaitRequest) error {
	if req.Patience <= 0 || req.GrantTTL <= 0 {
		return Invalid("a waiter's patience and grant TTL must be positive")
	}
	req.Patience, req.GrantTTL, req.Seen = min(req.Patience, MaxTTL), min(req.GrantTTL, MaxTTL), countable(req.Seen)
	if err := checkHolds(req.Holds); err != nil {
		return err
	}
	return CheckNumbers(req.Epoch, req.Ticket)
}

const (
	// maxNumbers is how many numbers the largest script of a single lock takes.
	maxNumbers = 10
	// maxDigits is the length of 18446744073709551615.
	maxDigits = 20
)

// An ArgWriter writes the numbers of one call into one buffer, which becomes one string. The arguments are parts of that
// string, so all of them cost one allocation.
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

// MinKeep is the least time for which a lock's record outlives its last change (see also BriefKeep). It is longer than a
// copy of an attempt that the record knows may be under way, and longer than Redis's clock may be behind another node's
// after a failover. A record is kept for twice the lease if that is longer, so that it outlives the hold. A lock that is
// no longer used costs some 280 bytes.
const MinKeep = 5 * time.Minute

// KeepFor returns how long to keep a record for a lease, in seconds.
func KeepFor(lease time.Duration) uint64 { return RoundUp(max(MinKeep, 2*lease), time.Second) }

// BriefKeep takes the place of MinKeep for a lock that was free and for which no session waited. Every name that is locked
// once leaves a record, so the record is kept only for as long as a copy of the attempt may still arrive, and as Redis's
// clock may be behind another node's.
const BriefKeep = 30 * time.Second

// BriefKeepFor returns how long to keep the record of a lock that was free and for which no session waited, in seconds.
func BriefKeepFor(req *backend.AcquireRequest) uint64 {
	return RoundUp(max(BriefKeep, 2*req.Lease, min(time.Until(req.NotAfter), MaxTTL)), time.Second)
}

// SharedKeepFor returns how long to keep the record of a shared name for a lease, in seconds. It is the least time: the
// script keeps the record for longer if an entry needs that. So the name is soon free for another kind of lock.
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
