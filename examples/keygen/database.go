package main

import (
	"context"
	"database/sql"
	"fmt"

	// The drivers, known to database/sql as "mysql" (imported by name in dialect.go), "pgx" and "sqlite".
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"
)

// A record names the worker that got a number: a row of key_fetch_record.
type record struct {
	key    int64
	server string // the process
	owner  string // the worker's name as an owner of the lock
	token  int64  // fencing token of the hold
}

// A database holds the two tables. Every statement is committed on its own.
type database struct {
	db      *sql.DB
	dialect dialect

	readStmt, raiseStmt, recordStmt *sql.Stmt
}

// openDatabase connects with at most the given number of connections. Each worker runs one statement at a time, so the database
// never needs more connections than workers.
func openDatabase(ctx context.Context, src source, connections int) (*database, error) {
	db, err := sql.Open(src.dialect.driver, src.driver)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", src.dialect.name, err)
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	if err := db.PingContext(ctx); err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("connect to %s at %s: %w", src.dialect.name, src.shown, err)
	}
	return &database{db: db, dialect: src.dialect}, nil
}

// recreate drops both tables and makes them anew, with 1 as the next number.
func (d *database) recreate(ctx context.Context) error {
	statements := []string{
		`DROP TABLE IF EXISTS key_fetch_record`,
		`DROP TABLE IF EXISTS key_generator`,
		`CREATE TABLE key_generator (id INT NOT NULL PRIMARY KEY, "key" BIGINT NOT NULL)` + d.dialect.suffix,
		// Nothing is unique here: the table must be able to show a number that was handed out twice.
		`CREATE TABLE key_fetch_record ("key" BIGINT NOT NULL, server VARCHAR(64) NOT NULL,
			owner VARCHAR(64) NOT NULL, token BIGINT NOT NULL)` + d.dialect.suffix,
		`CREATE INDEX key_fetch_record_key ON key_fetch_record ("key")`,
		`INSERT INTO key_generator (id, "key") VALUES (1, 1)`,
	}
	for _, statement := range statements {
		if _, err := d.db.ExecContext(ctx, d.dialect.sql(statement)); err != nil {
			return fmt.Errorf("make the tables: %w", err)
		}
	}
	return nil
}

// prepare prepares the three statements of a step, so that each of them costs one round trip.
func (d *database) prepare(ctx context.Context) error {
	for stmt, text := range map[**sql.Stmt]string{
		&d.readStmt: `SELECT g."key", (SELECT COUNT(*) FROM key_fetch_record r WHERE r."key" = g."key" - 1)
			FROM key_generator g WHERE g.id = 1`,
		&d.raiseStmt:  `UPDATE key_generator SET "key" = ? WHERE id = 1`,
		&d.recordStmt: `INSERT INTO key_fetch_record ("key", server, owner, token) VALUES (?, ?, ?, ?)`,
	} {
		prepared, err := d.db.PrepareContext(ctx, d.dialect.sql(text))
		if err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
		*stmt = prepared
	}
	return nil
}

// read returns the next number, and whether the number before it has a record. No worker gets the number 0, so 0 counts as
// recorded.
func (d *database) read(ctx context.Context) (next int64, recorded bool, err error) {
	var records int64
	if err := d.readStmt.QueryRowContext(ctx).Scan(&next, &records); err != nil {
		return 0, false, fmt.Errorf("read the number: %w", err)
	}
	return next, records > 0 || next == 1, nil
}

// raise sets the next number.
func (d *database) raise(ctx context.Context, next int64) error {
	if _, err := d.raiseStmt.ExecContext(ctx, next); err != nil {
		return fmt.Errorf("raise the number to %d: %w", next, err)
	}
	return nil
}

// record records the worker that got a number.
func (d *database) record(ctx context.Context, r record) error {
	if _, err := d.recordStmt.ExecContext(ctx, r.key, r.server, r.owner, r.token); err != nil {
		return fmt.Errorf("record the number %d: %w", r.key, err)
	}
	return nil
}

// records returns all records in the order of their numbers. Records of equal numbers are in the order of their tokens.
func (d *database) records(ctx context.Context) ([]record, error) {
	rows, err := d.db.QueryContext(ctx, d.dialect.sql(
		`SELECT "key", server, owner, token FROM key_fetch_record ORDER BY "key", token`))
	if err != nil {
		return nil, fmt.Errorf("list the records: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var all []record
	for rows.Next() {
		var r record
		if err := rows.Scan(&r.key, &r.server, &r.owner, &r.token); err != nil {
			return nil, fmt.Errorf("list the records: %w", err)
		}
		all = append(all, r)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list the records: %w", err)
	}
	return all, nil
}

// close ends the connections.
func (d *database) close() error { return d.db.Close() }
