package backend_test

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
)

var (
	_ driver.Valuer = backend.Token(0)
	_ sql.Scanner   = (*backend.Token)(nil)
)

func TestATokenIsAParameterOfAStatement(t *testing.T) {
	for _, token := range []backend.Token{0, 1, 1 << 53, math.MaxInt64} {
		v, err := driver.DefaultParameterConverter.ConvertValue(token)
		require.NoError(t, err)
		assert.Equal(t, int64(token), v)
		var back backend.Token
		require.NoError(t, back.Scan(v))
		assert.Equal(t, token, back)
	}
	for _, token := range []backend.Token{math.MaxInt64 + 1, math.MaxUint64} {
		_, err := token.Value()
		assert.ErrorContains(t, err, fmt.Sprint(uint64(token)), "a token must not become a negative number")
	}
}

func TestATokenIsReadFromAColumn(t *testing.T) {
	for _, src := range []any{int64(7), uint64(7), []byte("7"), "7"} {
		var token backend.Token
		require.NoError(t, token.Scan(src), "%T", src)
		assert.Equal(t, backend.Token(7), token)
	}
	for _, src := range []any{nil, int64(-1), "", "-1", []byte("seven"), "7.0", "99999999999999999999", 7.0, true, time.Time{}} {
		token := backend.Token(5)
		assert.Error(t, token.Scan(src), "%T %v", src, src)
		assert.Equal(t, backend.Token(5), token, "the token is not changed")
	}
}

// A table keeps the highest token that it has seen, and refuses statements with a lower one.
func ExampleToken_Value() {
	var token backend.Token = 34
	args := []any{token, "bolts", token} // for: UPDATE stock SET token = ? WHERE item = ? AND token <= ?
	v, err := args[0].(driver.Valuer).Value()
	fmt.Println(v, err)
	// Output: 34 <nil>
}
