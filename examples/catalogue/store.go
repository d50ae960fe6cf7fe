package main

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"sync/atomic"

	_ "modernc.org/sqlite" // known to database/sql as "sqlite"
)

// A price is a row of the price list.
type price struct {
	cents int64
	token int64 // fencing token of the last change
}

// A store is the price list in the database. Every statement is committed on its own.
type store struct {
	db      *sql.DB
	queries atomic.Int64 // queries for prices to serve; queries that check a price are not counted

	listStmt, rowStmt, setStmt, raiseStmt *sql.Stmt
}

// openStore opens a SQLite file that several processes use.
func openStore(ctx context.Context, path string, connections int) (*store, error) {
	settings := url.Values{"_pragma": {
		"busy_timeout(30000)", // wait for another process's statement instead of failing
		"journal_mode(WAL)",   // readers and the writer do not shut each other out
		"synchronous(OFF)",    // the operating system has the data of a killed process
	}}
	location := url.URL{Scheme: "file", Path: path, RawQuery: settings.Encode()}
	db, err := sql.Open("sqlite", location.String())
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return &store{db: db}, db.PingContext(ctx)
}

// create makes the price list. No later change can have one of its prices.
func (s *store) create(ctx context.Context, items int) error {
	statements := []string{
		`CREATE TABLE price (item INT NOT NULL PRIMARY KEY, cents BIGINT NOT NULL, token BIGINT NOT NULL)`,
		fmt.Sprintf(`WITH RECURSIVE n(item) AS (SELECT 0 UNION ALL SELECT item + 1 FROM n WHERE item < %d)
			INSERT INTO price (item, cents, token) SELECT item, 0, 0 FROM n`, items-1),
	}
	for _, statement := range statements {
		if _, err := s.db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("make the price list: %w", err)
		}
	}
	return nil
}

// prepare prepares the statements, so that each of them costs one round trip.
func (s *store) prepare(ctx context.Context) error {
	for stmt, text := range map[**sql.Stmt]string{
		&s.listStmt:  `SELECT cents, token FROM price ORDER BY item`,
		&s.rowStmt:   `SELECT cents, token FROM price WHERE item = ?`,
		&s.setStmt:   `UPDATE price SET cents = ?, token = ? WHERE item = ? AND token < ?`,
		&s.raiseStmt: `UPDATE price SET cents = ?, token = token + 1 WHERE item = ?`,
	} {
		prepared, err := s.db.PrepareContext(ctx, text)
		if err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
		*stmt = prepared
	}
	return nil
}

// list returns all prices.
func (s *store) list(ctx context.Context) ([]price, error) {
	s.queries.Add(1)
	rows, err := s.listStmt.QueryContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("load the price list: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var all []price
	for rows.Next() {
		var p price
		if err := rows.Scan(&p.cents, &p.token); err != nil {
			return nil, fmt.Errorf("load the price list: %w", err)
		}
		all = append(all, p)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("load the price list: %w", err)
	}
	return all, nil
}

// row returns one price.
func (s *store) row(ctx context.Context, item int) (p price, err error) {
	if err := s.rowStmt.QueryRowContext(ctx, item).Scan(&p.cents, &p.token); err != nil {
		return price{}, fmt.Errorf("read the price of item %d: %w", item, err)
	}
	return p, nil
}

// set changes a price under a token. If the price was changed under a higher token, it stays as it is.
func (s *store) set(ctx context.Context, item int, p price) error {
	if _, err := s.setStmt.ExecContext(ctx, p.cents, p.token, item, p.token); err != nil {
		return fmt.Errorf("change the price of item %d: %w", item, err)
	}
	return nil
}

// raise changes a price if there are no tokens.
func (s *store) raise(ctx context.Context, item int, cents int64) error {
	if _, err := s.raiseStmt.ExecContext(ctx, cents, item); err != nil {
		return fmt.Errorf("change the price of item %d: %w", item, err)
	}
	return nil
}

// close ends the connections.
func (s *store) close() error { return s.db.Close() }
