package backend

import (
	"context"
	"time"
)

// A Resumer is an optional interface of a [Remote] whose holds can move to another session.
type Resumer interface {
	// Resume moves the hold that an owner has, in whichever session, to an attempt of this session, with the same hold
	// count and token. It takes no free lock and no other owner's hold. The session that had the hold receives
	// [Sink.Taken]. After an unknown outcome sending it again is right, with a higher epoch and Until: otherwise a late
	// first copy would take the hold from the session that has it by then.
	Resume(ctx context.Context, req ResumeRequest) (ResumeReply, error)
}

// A ResumeRequest is one copy of an attempt to take up a hold.
type ResumeRequest struct {
	Epoch    uint64
	Owner    string        // the name of the owner, which is known in the whole deployment
	Lease    time.Duration // the hold has at least so long afterwards
	Fixed    bool          // the hold keeps the lease that it has, if it has one
	NotAfter time.Time     // from then on this copy is refused
	Seen     Token         // as in AcquireRequest
	// Until is the time up to which a copy of an attempt below Epoch may still be under way; such copies are refused
	// until then. Zero: none is.
	Until time.Time
	_     struct{}
}

// A ResumeReply is the reply to a ResumeRequest.
type ResumeReply struct {
	Status ResumeStatus
	Holds  int
	Token  Token
	TTL    time.Duration
	Note   string // of the hold ([Noter]); "" if it has none
	_      struct{}
}

// ResumeStatus is the result of a ResumeRequest.
type ResumeStatus int8

const (
	// Resumed: the hold is this attempt's.
	Resumed ResumeStatus = iota + 1
	// NotThere: the owner does not have the lock.
	NotThere
	// Overtaken: a later attempt of this session has the hold, or this one was given up.
	Overtaken
)
