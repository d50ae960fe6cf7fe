package lease

// A Change says what the reply to a renewal has changed.
type Change uint8

// The changes.
const (
	Unchanged Change = iota
	Prolonged        // the lease was prolonged
	Recovered        // the lease was prolonged, and the renewal before had failed
	Failing          // the renewal failed, and the one before had not
)

// ChangeBy returns what a renewal has changed. failed says whether the renewal failed, and failedBefore whether the one before
// it failed.
func ChangeBy(failedBefore, failed bool) Change {
	switch {
	case failed && failedBefore:
		return Unchanged
	case failed:
		return Failing
	case failedBefore:
		return Recovered
	}
	return Prolonged
}
