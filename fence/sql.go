package fence

import (
	"context"
	"database/sql"
	"fmt"
)

// A Dialect is the kind of SQL that a database understands.
type Dialect int8

const (
	// Postgres is PostgreSQL 9.5 or later.
	Postgres Dialect = iota + 1
	// MySQL is MySQL or MariaDB.
	MySQL
	// SQLite is SQLite 3.35 or later.
	SQLite
)

// A DB runs statements: a *sql.DB, a *sql.Conn or a *sql.Tx.
type DB interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// A Table keeps the highest tokens of any number of resources, a row for each, in the database that has their data.
//
//	tokens := fence.NewTable(fence.Postgres, "tokens")
//	…
//	err := tokens.Do(ctx, db, "stock:7", token, func(tx *sql.Tx) error {
//		// Statements that read and change the stock.
//	})
//
// A Table is safe for concurrent use.
type Table struct {
	name    string
	dialect Dialect
	create  string
	check   string
}

// The statements, with the name of the table left open. A check writes the row even if its token stays, so that the row
// is locked until the transaction ends. Resources that differ in case are different ones, which in MySQL needs a binary
// column.
var statements = map[Dialect]struct{ create, check string }{
	Postgres: {
		`CREATE TABLE IF NOT EXISTS %s (resource TEXT NOT NULL PRIMARY KEY, token BIGINT NOT NULL)`,
		`INSERT INTO %s AS seen (resource, token) VALUES ($1, $2)
			ON CONFLICT (resource) DO UPDATE SET token = GREATEST(seen.token, excluded.token) RETURNING token`,
	},
	MySQL: {
		`CREATE TABLE IF NOT EXISTS %s (resource VARBINARY(255) NOT NULL PRIMARY KEY, token BIGINT NOT NULL) ENGINE=InnoDB`,
		`INSERT INTO %s (resource, token) VALUES (?, ?)
			ON DUPLICATE KEY UPDATE token = LAST_INSERT_ID(GREATEST(token, VALUES(token)))`,
	},
	SQLite: {
		`CREATE TABLE IF NOT EXISTS %s (resource TEXT NOT NULL PRIMARY KEY, token INTEGER NOT NULL)`,
		`INSERT INTO %s AS seen (resource, token) VALUES (?, ?)
			ON CONFLICT (resource) DO UPDATE SET token = MAX(seen.token, excluded.token) RETURNING token`,
	},
}

// NewTable returns the table of that name. The name becomes a part of statements as it is, so it must not come from
// outside. NewTable sends nothing. It panics if there is no such dialect.
func NewTable(d Dialect, name string) *Table {
	s, ok := statements[d]
	if !ok {
		panic(fmt.Sprintf("fence: NewTable: there is no dialect %d", d))
	}
	return &Table{name: name, dialect: d, create: fmt.Sprintf(s.create, name), check: fmt.Sprintf(s.check, name)}
}

// Create makes the table if there is none. In MySQL this commits the transaction that it runs in. It returns the error of
// the database, and that of ctx if it ends first.
func (t *Table) Create(ctx context.Context, db DB) error {
	_, err := db.ExecContext(ctx, t.create)
	return failed(ctx, "create", t.name, err)
}

// Check shows a token to a resource, in one statement: from then on lower ones are refused. It returns ErrStale, or the
// error of the database, and that of ctx if it ends first; roll the transaction back then. A resource is at most 255 bytes
// in MySQL. The first check of a resource makes its row.
//
// In a transaction Check comes first, before anything is read: MySQL would go on to show the state of the first read. Other
// checks of the resource wait until the transaction ends. So a transaction that commits has read and written under a token
// that no later holder had overtaken, and a later holder sees all of it. A transaction that is rolled back has shown no token:
// what it read must not be used.
//
// Outside of a transaction, Check protects the transactions that check again, and no other statement.
func (t *Table) Check(ctx context.Context, db DB, resource string, token Token) error {
	err := begin(ctx, token)
	if err == nil {
		err = t.show(ctx, db, resource, token)
	}
	return failed(ctx, "check", resource, err)
}

// Do runs fn in a transaction that begins with [Table.Check]. It commits if fn returns nil, and otherwise rolls back and
// returns fn's error. It returns ErrStale, before fn runs, or the error of the database, after which the transaction may
// have been committed; doing the same again under the same hold is right if that does no harm. If ctx ends before the
// commit, the transaction is rolled back and the context's error is returned.
func (t *Table) Do(ctx context.Context, db *sql.DB, resource string, token Token, fn func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return failed(ctx, "begin a transaction for", resource, err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after the commit
	if err := t.Check(ctx, tx, resource, token); err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return err
	}
	return failed(ctx, "commit the transaction for", resource, tx.Commit())
}

func (t *Table) show(ctx context.Context, db DB, resource string, token Token) error {
	highest, err := t.raise(ctx, db, resource, token)
	if err != nil {
		return err
	}
	return compare(resource, token, highest)
}

// raise runs the statement, and returns the highest token after it.
func (t *Table) raise(ctx context.Context, db DB, resource string, token Token) (highest Token, err error) {
	if t.dialect != MySQL {
		err = db.QueryRowContext(ctx, t.check, resource, token).Scan(&highest)
		return highest, err
	}
	// MySQL returns no rows here, but the argument of LAST_INSERT_ID: 0 if the row is new.
	result, err := db.ExecContext(ctx, t.check, resource, token)
	if err != nil {
		return 0, err
	}
	id, err := result.LastInsertId()
	return Token(id), err
}
