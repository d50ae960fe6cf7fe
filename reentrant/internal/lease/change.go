package lease

// A Change says what the reply to a renewal has changed.
type Change uint8

// The changes.
const (
	Unchanged Change = iota
	Prolonged        // the lease was prolonged
	Recovered        // the same, after a renewal that had failed
	Failing          // the renewal is the first that failed
)

// ChangeBy returns what a renewal has changed: whether the one before it failed, and whether it did.
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
