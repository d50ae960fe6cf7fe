// Package fenced has resources that a lock protects and that do not rely on it: each remembers the highest fencing
// token that it has seen and refuses lower ones. So a holder that was paused past its lease, and still believes that it
// has the lock, gets an error from the resource that it tries to change.
//
//	A  token 7   read ──────────── paused ───────────────── write: refused
//	B  token 9              read 0 ───── write 1
//	   highest   7          9            9                  9
//
// A read shows its token too. If only writes did, A could wake up between B's read and B's write: A's write would have
// the highest token so far, and B's write would then overwrite a text that B never read.
package fenced

import (
	"context"
	"errors"
	"fmt"

	"github.com/relock-go/relock/reentrant"
)

// ErrOldToken is returned when a resource has seen a higher token: the caller's hold is over, and another has begun.
// Nothing was changed.
var ErrOldToken = errors.New("the token is older than another that was seen")

// A Resource is a text that is read and written under a lock. It is safe for concurrent use.
type Resource interface {
	// Read returns the text, and from then on lower tokens are refused. It returns ErrOldToken, or the error of the
	// database, after which the token may have been seen; reading again is right.
	Read(ctx context.Context, token reentrant.Token) (string, error)
	// Write sets the text. It returns ErrOldToken, or the error of the database, after which the text may have been
	// set; writing the same again under the same hold is right.
	Write(ctx context.Context, token reentrant.Token, text string) error
}

// failed adds the operation and the resource to an error.
func failed(op, name string, token reentrant.Token, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s with token %d: %w", op, name, token, err)
}
