// Package fence has guards for what a lock protects. A guard remembers the highest fencing token that it has seen, and
// refuses lower ones. So a holder that was paused past its lease, and still believes that it has the lock, gets an
// [ErrStale] from the resource that it tries to change.
//
//	A  token 7   read ──────────── paused ───────────────── write: refused
//	B  token 9              read 0 ───── write 1
//	   highest   7          9            9                  9
//
// A read shows its token too. If only writes did, A could wake up between B's read and B's write: A's write would have
// the highest token so far, and B's write would then overwrite data that B never read.
//
// There is a guard for each place where data can be:
//
//   - a [Table] in PostgreSQL, MySQL, MariaDB or SQLite, beside the tables of the application: [Table.Do] runs a
//     transaction that is guarded;
//   - a [Key] in Redis;
//   - an [Object] in S3, or in another store with conditional writes;
//   - a [File] in a local file system;
//   - a service of your own: [RequireToken] and [Refuse] at the server, [SetToken] and [FromResponse] at the client.
//
// The package [github.com/relock-go/relock/fence/fencetest] tests whether a [Resource] keeps these rules.
//
// A token comes from a hold: lock.Token(ctx) of the package reentrant. It is above 0 and below 2^53. Every other number
// is refused, with an error that is not ErrStale, and changes nothing.
package fence

import (
	"context"
	"errors"
	"fmt"

	"github.com/relock-go/relock/backend"
)

// A Token is a fencing token, as lock.Token(ctx) returns it.
type Token = backend.Token

// maxToken is the highest number up to which a float64, which Lua counts in, has all integers.
const maxToken Token = 1<<53 - 1

// A Resource is data that is read and written under a lock. It is safe for concurrent use, by several processes too.
type Resource interface {
	// Read returns the data, and from then on lower tokens are refused. The data of a resource that was never written is
	// empty. Read returns ErrStale, or the error of the store, after which the token may have been seen or not; reading
	// again is right. Read ends when ctx ends; with a ctx that has ended already it changes nothing.
	Read(ctx context.Context, token Token) ([]byte, error)
	// Write replaces the data, and from then on lower tokens are refused. It returns ErrStale, or the error of the store,
	// after which the data may have been written, or be written until a higher token is seen; writing the same again
	// under the same hold is right. Write ends when ctx ends; with a ctx that has ended already it changes nothing.
	Write(ctx context.Context, token Token, data []byte) error
}

// ErrStale is the error of a token that is lower than another that the resource has seen: the caller's hold is over, and
// another has begun. Nothing was changed. The error is a [StaleError], which has the tokens.
var ErrStale = errors.New("the fencing token is stale")

// A StaleError is an ErrStale with what was compared.
type StaleError struct {
	Resource string
	Token    Token // the caller's token
	Highest  Token // the highest token that the resource has seen
}

// Error names the resource and both tokens.
func (e *StaleError) Error() string {
	return fmt.Sprintf("%v: %s has seen token %d, which is higher than %d", ErrStale, e.Resource, e.Highest, e.Token)
}

// Unwrap returns ErrStale.
func (e *StaleError) Unwrap() error { return ErrStale }

// compare returns a StaleError if a resource has seen a higher token.
func compare(resource string, token, highest Token) error {
	if token < highest {
		return &StaleError{Resource: resource, Token: token, Highest: highest}
	}
	return nil
}

// begin returns the error of an operation that must not begin: its context has ended, or its token is invalid.
func begin(ctx context.Context, token Token) error {
	if token == 0 || token > maxToken {
		return fmt.Errorf("%d is no fencing token", token)
	}
	return ctx.Err()
}

// failed adds the operation and the resource to an error, and the error of a context that has ended: clients of databases
// do not always return it.
func failed(ctx context.Context, op, resource string, err error) error {
	if err == nil {
		return nil
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) && !errors.Is(err, ErrStale) {
		err = fmt.Errorf("%w: %w", ended, err)
	}
	return fmt.Errorf("fence: %s %s: %w", op, resource, err)
}
