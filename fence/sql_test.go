package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/relock-go/relock/fence"
	"github.com/relock-go/relock/fence/fencetest"
)

// A server is a kind of database.
type server struct {
	dialect fence.Dialect
	driver  string
	dsn     func(t *testing.T) string
}

// servers are all kinds. MariaDB and PostgreSQL are tested if FENCE_MYSQL and FENCE_POSTGRES name a database in the way
// that their drivers want it, as stage race does.
var servers = map[string]server{
	"SQLite":     {fence.SQLite, "sqlite", sqlite},
	"MySQL":      {fence.MySQL, "mysql", func(t *testing.T) string { return given(t, "FENCE_MYSQL") }},
	"PostgreSQL": {fence.Postgres, "pgx", func(t *testing.T) string { return given(t, "FENCE_POSTGRES") }},
}

func sqlite(t *testing.T) string {
	return "file:" + filepath.Join(t.TempDir(), "data.db") +
		"?_pragma=busy_timeout(600000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"
}

func given(t *testing.T, variable string) string {
	value := os.Getenv(variable)
	if value == "" {
		t.Skip(variable + " is not set")
	}
	return value
}

// A database has a table of tokens and a table of data for a single test.
type database struct {
	server
	address string
	suffix  string // of the tables' names
	broken  atomic.Bool
}

// newDatabase makes the tables.
func newDatabase(t *testing.T, s server) *database {
	d := &database{server: s, address: s.dsn(t), suffix: strconv.FormatUint(rand.Uint64(), 36)}
	db := d.open(t)
	require.NoError(t, d.tokens().Create(t.Context(), db))
	require.NoError(t, d.tokens().Create(t.Context(), db), "it is there already")
	columns := map[fence.Dialect]string{
		fence.SQLite: "id TEXT PRIMARY KEY, data BLOB", fence.Postgres: "id TEXT PRIMARY KEY, data BYTEA",
		fence.MySQL: "id VARCHAR(64) PRIMARY KEY, data BLOB",
	}
	_, err := db.ExecContext(t.Context(), "CREATE TABLE data_"+d.suffix+" ("+columns[s.dialect]+")")
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := db.ExecContext(context.Background(), "DROP TABLE data_"+d.suffix)
		assert.NoError(t, err)
		_, err = db.ExecContext(context.Background(), "DROP TABLE tokens_"+d.suffix)
		assert.NoError(t, err)
	})
	return d
}

func (d *database) tokens() *fence.Table { return fence.NewTable(d.dialect, "tokens_"+d.suffix) }

func (d *database) open(t testing.TB) *sql.DB {
	db, err := sql.Open(d.driver, d.address)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	db.SetMaxOpenConns(4)
	return db
}

// row returns a resource in the database: what an application makes of a [fence.Table] and a table of its own.
func (d *database) row(db *sql.DB, id string) fence.Resource {
	return &row{database: d, db: db, tokens: d.tokens(), id: id}
}

type row struct {
	*database
	db     *sql.DB
	tokens *fence.Table
	id     string
}

func (r *row) Read(ctx context.Context, token fence.Token) (data []byte, err error) {
	err = r.do(ctx, token, func(tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx, r.sql("SELECT data FROM data_* WHERE id = ?"), r.id).Scan(&data)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	return data, err
}

func (r *row) Write(ctx context.Context, token fence.Token, data []byte) error {
	return r.do(ctx, token, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, r.sql("DELETE FROM data_* WHERE id = ?"), r.id); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, r.sql("INSERT INTO data_* (id, data) VALUES (?, ?)"), r.id, append([]byte{}, data...))
		if r.broken.Load() {
			return errors.New("broken by the test")
		}
		return err
	})
}

func (r *row) do(ctx context.Context, token fence.Token, statements func(tx *sql.Tx) error) error {
	return r.tokens.Do(ctx, r.db, r.id, token, statements)
}

// sql puts the table's name and the database's parameters into a statement.
func (d *database) sql(statement string) string {
	statement = strings.ReplaceAll(statement, "*", d.suffix)
	for i := 1; d.dialect == fence.Postgres && strings.Contains(statement, "?"); i++ {
		statement = strings.Replace(statement, "?", "$"+strconv.Itoa(i), 1)
	}
	return statement
}

// eachServer runs a test on all kinds of databases.
func eachServer(t *testing.T, test func(t *testing.T, d *database)) {
	for name, s := range servers {
		t.Run(name, func(t *testing.T) { test(t, newDatabase(t, s)) })
	}
}

func (d *database) fixture() fencetest.Fixture {
	return fencetest.Fixture{
		Open: func(t testing.TB) fence.Resource { return d.row(d.open(t), "the row") },
		Break: func(testing.TB) func() {
			d.broken.Store(true)
			return func() { d.broken.Store(false) }
		},
	}
}

func TestTable(t *testing.T) {
	for name, s := range servers {
		t.Run(name, func(t *testing.T) {
			fencetest.Run(t, func(t *testing.T) fencetest.Fixture { return newDatabase(t, s).fixture() })
		})
	}
}

func TestATableKeepsAnyNumberOfResources(t *testing.T) {
	eachServer(t, func(t *testing.T, d *database) {
		db, tokens := d.open(t), d.tokens()
		for i, name := range []string{"a", "A", "a ", "ä", "", strings.Repeat("x", 255)} {
			require.NoError(t, tokens.Check(t.Context(), db, name, fence.Token(100-i)), "%q is a resource of its own", name)
		}
		require.ErrorIs(t, tokens.Check(t.Context(), db, "a", 99), fence.ErrStale)
		require.NoError(t, tokens.Check(t.Context(), db, "a", 100))
	})
}

// A later holder's check waits until the transaction of an earlier one ends, and then sees what it wrote.
func TestACheckWaitsForTheTransactionBeforeIt(t *testing.T) {
	eachServer(t, func(t *testing.T, d *database) {
		db := d.open(t)
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, d.tokens().Check(t.Context(), tx, "the row", 7))
		_, err = tx.ExecContext(t.Context(), d.sql("INSERT INTO data_* (id, data) VALUES (?, ?)"), "the row", []byte("seven"))
		require.NoError(t, err)
		read := make(chan string)
		go func() {
			data, err := d.row(d.open(t), "the row").Read(t.Context(), 8)
			assert.NoError(t, err)
			read <- string(data)
		}()
		require.NoError(t, tx.Commit())
		assert.Equal(t, "seven", <-read)
	})
}

func TestAnErrorInATransactionIsReturnedAsItIs(t *testing.T) {
	d := newDatabase(t, servers["SQLite"])
	db := d.open(t)
	soldOut := errors.New("sold out")
	assert.Equal(t, soldOut, d.tokens().Do(t.Context(), db, "the row", 7, func(*sql.Tx) error { return soldOut }))
	assert.Panics(t, func() { _ = d.tokens().Do(t.Context(), db, "the row", 7, func(*sql.Tx) error { panic("in the test") }) })
	ran := false
	require.NoError(t, d.tokens().Do(t.Context(), db, "the row", 6, func(*sql.Tx) error { ran = true; return nil }), "7 was rolled back")
	assert.True(t, ran)
	require.ErrorIs(t, d.tokens().Do(t.Context(), db, "the row", 5, func(*sql.Tx) error { panic("it must not run") }), fence.ErrStale)
}

func TestATransactionEndsWithItsContext(t *testing.T) {
	eachServer(t, func(t *testing.T, d *database) {
		db := d.open(t)
		ctx, cancel := context.WithCancel(t.Context())
		err := d.tokens().Do(ctx, db, "the row", 7, func(*sql.Tx) error { cancel(); return nil })
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, d.tokens().Check(t.Context(), db, "the row", 6), "7 was rolled back")
	})
}

// A transaction that is rolled back has shown no token.
func TestARollbackTakesTheTokenBack(t *testing.T) {
	eachServer(t, func(t *testing.T, d *database) {
		db := d.open(t)
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, d.tokens().Check(t.Context(), tx, "the row", 7))
		require.NoError(t, tx.Rollback())
		require.NoError(t, d.tokens().Check(t.Context(), db, "the row", 5))
	})
}

func TestThereAreThreeDialects(t *testing.T) {
	assert.Panics(t, func() { fence.NewTable(0, "tokens") })
	assert.Panics(t, func() { fence.NewTable(4, "tokens") })
}
