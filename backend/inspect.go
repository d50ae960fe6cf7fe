package backend

import "context"

// An Inspector is an optional interface of a [Conn] that reads the states of many locks in about the time of one.
// Without it a session sends one Inspect for each lock, all at the same time.
type Inspector interface {
	// InspectAll does for each inspection what [Remote].Inspect does, and sets State or Err. One bad lock never keeps the
	// others from being read. The states need not be of one moment.
	InspectAll(ctx context.Context, inspections []Inspection)
}

// An Inspection is a request for the state of one lock.
type Inspection struct {
	Remote Remote // of the Conn that is asked
	State  State  // set by InspectAll, if Err is nil
	Err    error
	_      struct{}
}
