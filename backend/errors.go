package backend

import "errors"

var (
	// ErrUnavailable is returned when the backend was not reached, did not reply in time, or cannot execute commands at
	// present (it is starting, for instance). It says nothing about the lock's holder.
	ErrUnavailable = errors.New("backend unavailable")
	// ErrNotReplicated is returned when a verb got a lock or units, but too few replicas have them
	// (redisbackend.WithReplicas). From Acquire it is a refusal, and the lock was given back. From Share it is a refusal
	// whose outcome is unknown: the session has units that it must not use, and its next request says which of them it keeps.
	// From Resume it is no refusal, but its outcome is unknown: at the server this session has the hold.
	ErrNotReplicated = errors.New("too few replicas have it")
	// ErrNoQuorum is returned when too few nodes of a quorum replied to decide (redisbackend.NewQuorum). It says
	// nothing about the lock's holder.
	ErrNoQuorum = errors.New("no majority of the nodes")
)

// unknownError marks an error after which the verb may still have happened.
type unknownError struct{ error }

func (e unknownError) Unwrap() error { return e.error }

// refusedError marks an error of the server, which read the verb and refused it.
type refusedError struct{ error }

func (e refusedError) Unwrap() error { return e.error }

// WithOutcomeUnknown marks err, for Backends: the verb may still have happened.
func WithOutcomeUnknown(err error) error { return unknownError{err} }

// WithRefused marks err, for Backends: the server refused, and would refuse again (a wrong password, a missing right, a
// key of another type). If it refused in the middle of the verb, the outcome is unknown too.
func WithRefused(err error) error { return refusedError{err} }

// OutcomeUnknown reports whether the call may have taken effect at the server although it returned err. Whether it did or
// not, what the call has at the server ends with the lease at the latest.
func OutcomeUnknown(err error) bool {
	_, ok := errors.AsType[unknownError](err)
	return ok
}

// Refused reports whether err is the server's own refusal, such as a wrong password or a missing right. It does not mean that
// another owner has the lock, and trying again does not help. The call has changed nothing, unless [OutcomeUnknown] is true
// too: then the server may have stopped in the middle of the call.
func Refused(err error) bool {
	_, ok := errors.AsType[refusedError](err)
	return ok
}
