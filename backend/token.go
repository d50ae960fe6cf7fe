package backend

import (
	"database/sql/driver"
	"fmt"
	"math"
	"strconv"
)

// A Token is a fencing token: a number that rises with every outermost acquire of a lock, over all processes. A
// resource that remembers the highest token it has seen and refuses lower ones is safe from a holder that was
// paused past its lease. Re-entry keeps the token, as in Hazelcast's FencedLock.
type Token uint64

// Value makes a Token a parameter of a database's statement, as an int64. A token above 2⁶³−1, which no clock gives, is an
// error.
func (t Token) Value() (driver.Value, error) {
	if t > math.MaxInt64 {
		return nil, fmt.Errorf("relock: token %d is above %d, the largest that databases keep", uint64(t), int64(math.MaxInt64))
	}
	return int64(t), nil
}

// Scan reads a Token from a database's column: an integer, or its decimal digits as text. Anything else is an error and
// leaves the Token as it was. NULL is an error too: a query can select COALESCE(column, 0) in place of it, since 0 is lower
// than all tokens.
func (t *Token) Scan(src any) error {
	switch v := src.(type) {
	case int64:
		if v < 0 {
			return fmt.Errorf("relock: %d is no token: it is negative", v)
		}
		*t = Token(v)
		return nil
	case uint64: // of an unsigned column, as MySQL's driver gives it
		*t = Token(v)
		return nil
	case []byte:
		return t.parse(string(v))
	case string:
		return t.parse(v)
	}
	return fmt.Errorf("relock: a value of type %T is no token", src)
}

func (t *Token) parse(text string) error {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return fmt.Errorf("relock: %q is no token: %w", text, err)
	}
	*t = Token(n)
	return nil
}
