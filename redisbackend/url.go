package redisbackend

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"
)

// ParseURL reads the URL of a server as [Open] does. Use it to check a URL before anything is opened, or to add options that
// a URL cannot have before [OpenClient]. Unlike rueidis.ParseURL it refuses parameters that are not known, and its errors
// never quote a password.
func ParseURL(url string) (rueidis.ClientOption, error) {
	option, err := clientOption(url)
	if err != nil {
		err = fmt.Errorf("redisbackend: ParseURL: %w", err)
	}
	return option, err
}

// parameters are the names of the parameters that rueidis.ParseURL knows. rueidis.ParseURL ignores all others.
var parameters = []string{"addr", "client_cache", "client_name", "db", "dial_timeout", "master_set", "max_retries", "protocol",
	"skip_verify", "write_timeout"}

// checkParameters returns an error that names the first parameter that is not known. It does not
// quote a text that may be a part of a password: one that cannot be a name, or any text of a query that has an @.
func checkParameters(query string) error {
	if query == "" {
		return nil
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return errInvalid
	}
	for _, address := range values["addr"] {
		if _, _, err := net.SplitHostPort(address); err != nil { // rueidis would take the URL's host
			return errInvalid
		}
	}
	for part := range strings.SplitSeq(query, "&") {
		name, _, given := strings.Cut(part, "=")
		known, err := url.QueryUnescape(name)
		switch {
		case part == "", err == nil && slices.Contains(parameters, known):
		case strings.Contains(query, "@"):
			return errMisplaced
		case !given || strings.ContainsFunc(name, noNameSign):
			return errors.New("the URL has a parameter that is not known; known are " + strings.Join(parameters, ", "))
		default:
			return fmt.Errorf("the URL's parameter %q is not known; known are %s", name, strings.Join(parameters, ", "))
		}
	}
	return nil
}

// validPort reports whether the port of a URL is empty, or a number that a port can have.
func validPort(port string) bool {
	_, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil
}

// noNameSign reports whether r is a character that no parameter's name has.
func noNameSign(r rune) bool {
	return r != '_' && r != '-' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
}

var (
	errMisplaced = errors.New("the URL has a # or an @ where neither can be (special characters in a password must be percent-encoded)")
	errInvalid   = errors.New("the URL's host, port, database or parameters are not valid (special characters in a password must be percent-encoded)")
)
