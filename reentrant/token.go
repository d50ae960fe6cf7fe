package reentrant

import "github.com/relock-go/relock/backend"

// A Token is a fencing token: a number that rises with every outermost acquire of a lock, over all processes. A
// resource that remembers the highest token it has seen and refuses lower ones is safe from a holder that was
// paused past its lease. Re-entry keeps the token, as in Hazelcast's FencedLock.
type Token = backend.Token

// State is the state of a lock in the whole deployment at one moment.
type State = backend.State
