package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/fence"
)

// databases are all kinds of databases. MariaDB and PostgreSQL are tested if SEATS_MYSQL and SEATS_POSTGRES are the
// URLs of databases, in which the table seats is dropped.
var databases = map[string]func(t *testing.T) string{
	"SQLite":     func(t *testing.T) string { return filepath.Join(t.TempDir(), "seats.db") },
	"MySQL":      func(t *testing.T) string { return given(t, "SEATS_MYSQL") },
	"PostgreSQL": func(t *testing.T) string { return given(t, "SEATS_POSTGRES") },
}

func given(t *testing.T, variable string) string {
	value := os.Getenv(variable)
	if value == "" {
		t.Skip(variable + " is not set")
	}
	return value
}

// eachDatabase runs a test on all kinds of databases.
func eachDatabase(t *testing.T, test func(t *testing.T, s *sales)) {
	for name, dsn := range databases {
		t.Run(name, func(t *testing.T) {
			src, err := parseSource(dsn(t))
			require.NoError(t, err)
			s, err := openSales(t.Context(), src)
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, s.close()) })
			for _, table := range []string{"seats", "seats_tokens"} {
				_, err = s.db.ExecContext(t.Context(), `DROP TABLE IF EXISTS `+table)
				require.NoError(t, err)
			}
			require.NoError(t, s.create(t.Context()))
			test(t, s)
		})
	}
}

func TestASaleIsRecordedOnce(t *testing.T) {
	eachDatabase(t, func(t *testing.T, s *sales) {
		const token = 1795249693077999 // microseconds since 1970, as Relock's are
		buyer, err := s.show(t.Context(), "A05", token)
		require.NoError(t, err)
		assert.Empty(t, buyer)
		require.NoError(t, s.sell(t.Context(), "ann", sale{"A05", token}))
		require.NoError(t, s.sell(t.Context(), "ann", sale{"A05", token}), "the same sale again")
		buyer, err = s.show(t.Context(), "A05", token+1)
		require.NoError(t, err)
		assert.Equal(t, "ann", buyer)
		assert.ErrorIs(t, s.sell(t.Context(), "bob", sale{"A05", token + 1}), errBought, "what is sold stays sold")

		require.NoError(t, s.create(t.Context()), "when the cinema opens again")
		sold, err := s.sold(t.Context())
		require.NoError(t, err)
		assert.Equal(t, map[seat]string{"A05": "ann"}, sold)
	})
}

// Ann's server was paused; her hold ended, and bob's began. The statement of ann's server comes too late, whether or not bob
// has bought the seat by then.
func TestAnEarlierHoldBuysNothing(t *testing.T) {
	eachDatabase(t, func(t *testing.T, s *sales) {
		_, err := s.show(t.Context(), "A05", 7)
		require.NoError(t, err)
		_, err = s.show(t.Context(), "A05", 9)
		require.NoError(t, err)
		assert.ErrorIs(t, s.sell(t.Context(), "ann", sale{"A05", 7}), fence.ErrStale)
		_, err = s.show(t.Context(), "A05", 7)
		assert.ErrorIs(t, err, fence.ErrStale)
		require.NoError(t, s.sell(t.Context(), "bob", sale{"A05", 9}))
		assert.ErrorIs(t, s.sell(t.Context(), "ann", sale{"A05", 7}), fence.ErrStale)
		sold, err := s.sold(t.Context())
		require.NoError(t, err)
		assert.Equal(t, map[seat]string{"A05": "bob"}, sold)
	})
}

// One of the holds is over, so nothing is sold.
func TestSeatsAreSoldTogetherOrNotAtAll(t *testing.T) {
	eachDatabase(t, func(t *testing.T, s *sales) {
		_, err := s.show(t.Context(), "A06", 9)
		require.NoError(t, err)
		assert.ErrorIs(t, s.sell(t.Context(), "ann", sale{"A05", 8}, sale{"A06", 8}), fence.ErrStale)
		sold, err := s.sold(t.Context())
		require.NoError(t, err)
		assert.Empty(t, sold)
		require.NoError(t, s.sell(t.Context(), "ann", sale{"A05", 10}, sale{"A06", 10}))
		sold, err = s.sold(t.Context())
		require.NoError(t, err)
		assert.Equal(t, map[seat]string{"A05": "ann", "A06": "ann"}, sold)
	})
}
