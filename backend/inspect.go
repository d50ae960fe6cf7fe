package backend

import "context"

// An Inspector is what a [Conn] can be besides: one that reads the states of many locks in about the time of one. Without it
// a session asks for each lock by itself, all at once.
type Inspector interface {
	// InspectAll does for each inspection what [Remote].Inspect does, and sets State or Err. One bad lock never keeps the
	// others from being read. The states need not be of one moment.
	InspectAll(ctx context.Context, inspections []Inspection)
}

// An Inspection is one lock whose state is asked for.
type Inspection struct {
	Remote Remote // of the Conn that is asked
	State  State  // set by InspectAll, if Err is nil
	Err    error
	_      struct{}
}
