package fenced_test

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/relock-go/relock/examples/internal/fenced"
	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

// resources are all kinds of resources. MariaDB and PostgreSQL are tested if FENCED_MYSQL and FENCED_POSTGRES name a
// database in the way that their drivers want it.
var resources = map[string]func(t *testing.T) fenced.Resource{
	"SQLite": func(t *testing.T) fenced.Resource {
		path := filepath.Join(t.TempDir(), "fenced.db")
		return row(t, "sqlite", "file:"+path+"?_pragma=busy_timeout(30000)&_pragma=journal_mode(WAL)", fenced.Question)
	},
	"MySQL":      func(t *testing.T) fenced.Resource { return row(t, "mysql", given(t, "FENCED_MYSQL"), fenced.Question) },
	"PostgreSQL": func(t *testing.T) fenced.Resource { return row(t, "pgx", given(t, "FENCED_POSTGRES"), fenced.Dollar) },
	"EmbeddedRedis": func(t *testing.T) fenced.Resource {
		return fenced.NewKey(redistest.Start(t).Client(), "fenced")
	},
	"Redis": func(t *testing.T) fenced.Resource {
		option := rueidis.MustParseURL(redisserver.Start(t).URL())
		option.DisableCache = true
		client, err := rueidis.NewClient(option)
		require.NoError(t, err)
		t.Cleanup(client.Close)
		return fenced.NewKey(client, "fenced")
	},
}

func given(t *testing.T, variable string) string {
	value := os.Getenv(variable)
	if value == "" {
		t.Skip(variable + " is not set")
	}
	return value
}

// row makes a row for this test.
func row(t *testing.T, driver, dsn string, p fenced.Parameters) fenced.Resource {
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	db.SetMaxOpenConns(4)
	require.NoError(t, fenced.CreateTable(t.Context(), db))
	id := strconv.FormatUint(rand.Uint64(), 36)
	require.NoError(t, fenced.Insert(t.Context(), db, p, id))
	return fenced.NewRow(db, p, id)
}

// each runs a test on all kinds of resources.
func each(t *testing.T, test func(t *testing.T, r fenced.Resource)) {
	for name, open := range resources {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

func read(t *testing.T, r fenced.Resource, token reentrant.Token) string {
	t.Helper()
	text, err := r.Read(t.Context(), token)
	require.NoError(t, err)
	return text
}

func TestTokensThatDoNotFallGetIn(t *testing.T) {
	each(t, func(t *testing.T, r fenced.Resource) {
		assert.Empty(t, read(t, r, 5))
		require.NoError(t, r.Write(t.Context(), 5, "five"))
		require.NoError(t, r.Write(t.Context(), 5, "five"), "the same token again")
		assert.Equal(t, "five", read(t, r, 5))
		require.NoError(t, r.Write(t.Context(), 7, "seven"), "a write without a read before it")
		assert.Equal(t, "seven", read(t, r, 9))
	})
}

func TestOldTokensAreRefused(t *testing.T) {
	each(t, func(t *testing.T, r fenced.Resource) {
		require.NoError(t, r.Write(t.Context(), 8, "eight"))
		require.ErrorIs(t, r.Write(t.Context(), 7, "seven"), fenced.ErrOldToken)
		_, err := r.Read(t.Context(), 7)
		require.ErrorIs(t, err, fenced.ErrOldToken)
		assert.Equal(t, "eight", read(t, r, 8), "nothing was changed")
	})
}

// A holder was paused between its read and its write. Another holder has read meanwhile, but not written yet: the write
// is refused.
func TestReadingIsEnoughToKeepOldTokensOut(t *testing.T) {
	each(t, func(t *testing.T, r fenced.Resource) {
		read(t, r, 7)
		read(t, r, 8)
		require.ErrorIs(t, r.Write(t.Context(), 7, "seven"), fenced.ErrOldToken)
		require.NoError(t, r.Write(t.Context(), 8, "eight"))
	})
}

func TestTokensKeepAllTheirDigits(t *testing.T) {
	each(t, func(t *testing.T, r fenced.Resource) {
		const token = 1795249693077999 // microseconds since 1970, as Relock's are
		read(t, r, token)
		require.ErrorIs(t, r.Write(t.Context(), token-1, "old"), fenced.ErrOldToken)
		require.NoError(t, r.Write(t.Context(), token, "new"))
	})
}

func TestErrorsOfTheDatabaseAreNotRefusals(t *testing.T) {
	each(t, func(t *testing.T, r fenced.Resource) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := r.Write(ctx, 1, "one")
		require.ErrorIs(t, err, context.Canceled)
		assert.NotErrorIs(t, err, fenced.ErrOldToken)
	})
}

// Many writers that have a token each and no lock, which is the worst case for a resource: a write that succeeds
// replaces only what its writer has read.
func TestNoUpdateIsLostWithoutAnyLock(t *testing.T) {
	each(t, func(t *testing.T, r fenced.Resource) {
		var tokens, accepted, refused atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 30 {
					switch err := increment(t.Context(), r, reentrant.Token(tokens.Add(1))); {
					case err == nil:
						accepted.Add(1)
					case errors.Is(err, fenced.ErrOldToken):
						refused.Add(1)
					default:
						assert.NoError(t, err)
					}
				}
			})
		}
		wg.Wait()
		n, err := strconv.ParseInt(read(t, r, reentrant.Token(tokens.Load())), 10, 64)
		require.NoError(t, err)
		assert.Equal(t, accepted.Load(), n)
		assert.Positive(t, refused.Load(), "some of the writers overlapped")
		assert.Positive(t, accepted.Load())
	})
}

// increment reads a number, pauses, and writes it back plus one.
func increment(ctx context.Context, r fenced.Resource, token reentrant.Token) error {
	text, err := r.Read(ctx, token)
	if err != nil {
		return err
	}
	n, _ := strconv.Atoi(text) // an empty text stands for 0
	time.Sleep(time.Duration(rand.Int64N(int64(time.Millisecond))))
	return r.Write(ctx, token, strconv.Itoa(n+1))
}
