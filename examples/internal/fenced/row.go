package fenced

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/relock-go/relock/reentrant"
)

// A Row is a row in the table fenced of an SQL database. Each check is in the WHERE of the statement that changes the
// row, so no transaction is needed.
type Row struct {
	db *sql.DB
	id string

	seeText, readText, writeText string
}

var _ Resource = (*Row)(nil)

// Parameters is a database's syntax for the parameters of a statement.
type Parameters int8

const (
	// Question is "?": SQLite, MySQL, MariaDB.
	Question Parameters = iota
	// Dollar is "$1": PostgreSQL.
	Dollar
)

// CreateTable makes the table fenced if there is none.
func CreateTable(ctx context.Context, db *sql.DB) error {
	// changes is there because MySQL reports the rows that an UPDATE changed, where others report those it found:
	// without it, a token that is seen for the second time would look refused.
	_, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS fenced (id VARCHAR(64) NOT NULL PRIMARY KEY,
		content TEXT NOT NULL, token BIGINT NOT NULL, changes BIGINT NOT NULL)`)
	if err != nil {
		return fmt.Errorf("make the table: %w", err)
	}
	return nil
}

// Insert makes a row with an empty text. It fails if there is one with the id.
func Insert(ctx context.Context, db *sql.DB, p Parameters, id string) error {
	_, err := db.ExecContext(ctx, p.sql(`INSERT INTO fenced (id, content, token, changes) VALUES (?, '', 0, 0)`), id)
	if err != nil {
		return fmt.Errorf("make the row %s: %w", id, err)
	}
	return nil
}

// NewRow returns the row with an id. It sends nothing.
func NewRow(db *sql.DB, p Parameters, id string) *Row {
	return &Row{
		db: db, id: id,
		seeText:   p.sql(`UPDATE fenced SET token = ?, changes = changes + 1 WHERE id = ? AND token <= ?`),
		readText:  p.sql(`SELECT content FROM fenced WHERE id = ? AND token = ?`),
		writeText: p.sql(`UPDATE fenced SET content = ?, token = ?, changes = changes + 1 WHERE id = ? AND token <= ?`),
	}
}

// Read shows the row the token, and then reads the text unless the row has seen a higher token meanwhile.
func (r *Row) Read(ctx context.Context, token reentrant.Token) (string, error) {
	if err := r.update(ctx, r.seeText, int64(token), r.id, int64(token)); err != nil {
		return "", failed("read", r.id, token, err)
	}
	var text string
	err := r.db.QueryRowContext(ctx, r.readText, r.id, int64(token)).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrOldToken
	}
	return text, failed("read", r.id, token, err)
}

// Write sets the text in one statement.
func (r *Row) Write(ctx context.Context, token reentrant.Token, text string) error {
	return failed("write", r.id, token, r.update(ctx, r.writeText, text, int64(token), r.id, int64(token)))
}

// update runs a statement that finds the row if the token is not too old.
func (r *Row) update(ctx context.Context, statement string, args ...any) error {
	result, err := r.db.ExecContext(ctx, statement, args...)
	if err != nil {
		return err
	}
	rows, err := result.RowsAffected()
	if err == nil && rows == 0 {
		err = ErrOldToken
	}
	return err
}

// sql rewrites the question marks of a statement in the database's syntax.
func (p Parameters) sql(statement string) string {
	if p == Question {
		return statement
	}
	var b strings.Builder
	for i, part := range strings.Split(statement, "?") {
		if i > 0 {
			b.WriteString("$" + strconv.Itoa(i))
		}
		b.WriteString(part)
	}
	return b.String()
}
