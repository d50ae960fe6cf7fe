package fence

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

const (
	// Header is the header of a request that has the token, in decimal digits.
	Header = "Relock-Token"
	// HighestHeader is the header of a response that refuses a token: the highest that the resource has seen.
	HighestHeader = "Relock-Token-Highest"
)

// RequireToken returns a handler that gives next the token of each request: [FromContext] returns it. A request without a
// token is answered with 428 (Precondition Required), one with a wrong token with 400, and next does not run.
//
// The middleware refuses no token as stale: a later holder's request could come between such a check and what the
// handler writes. The store to which the handler writes refuses stale tokens, as a [Table] or a [Resource] does, and
// [Refuse] says so to the client. Take tokens only from clients that you trust: a request with a high token shuts all
// lower ones out.
func RequireToken(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		values := r.Header.Values(Header)
		if len(values) == 0 {
			http.Error(w, "the header "+Header+" is missing", http.StatusPreconditionRequired)
			return
		}
		token, err := parse(values)
		if err != nil {
			http.Error(w, "the header "+Header+" has no token", http.StatusBadRequest)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tokenKey{}, token)))
	})
}

type tokenKey struct{}

// FromContext returns the token of the request that a handler behind [RequireToken] serves; 0, which every guard refuses,
// if there is none.
func FromContext(ctx context.Context) Token {
	token, _ := ctx.Value(tokenKey{}).(Token)
	return token
}

// Refuse answers a request with 412 (Precondition Failed) if err is an ErrStale, and reports whether it did. The answer
// has the highest token, and no name of a resource.
func Refuse(w http.ResponseWriter, err error) bool {
	var stale *StaleError
	if !errors.As(err, &stale) {
		return false
	}
	w.Header().Set(HighestHeader, digitsOf(stale.Highest))
	http.Error(w, ErrStale.Error(), http.StatusPreconditionFailed)
	return true
}

// SetToken puts a token into the header of a request.
func SetToken(r *http.Request, token Token) { r.Header.Set(Header, digitsOf(token)) }

// FromResponse returns a [StaleError], which names the URL's path, if the server has refused the token of the request with
// [Refuse]. Otherwise it returns nil, whatever the status is. It does not touch the body.
func FromResponse(response *http.Response) error {
	if response.StatusCode != http.StatusPreconditionFailed || response.Request == nil {
		return nil
	}
	highest, err := parse(response.Header.Values(HighestHeader))
	if err != nil { // another precondition failed
		return nil
	}
	token, err := parse(response.Request.Header.Values(Header))
	if err != nil {
		return nil
	}
	return compare(response.Request.URL.Path, token, highest)
}

// parse returns the token of a header.
func parse(values []string) (Token, error) {
	if len(values) != 1 {
		return 0, fmt.Errorf("%d tokens", len(values))
	}
	n, err := strconv.ParseUint(values[0], 10, 64)
	if err != nil {
		return 0, err
	}
	return Token(n), begin(context.Background(), Token(n))
}

func digitsOf(token Token) string { return strconv.FormatUint(uint64(token), 10) }
