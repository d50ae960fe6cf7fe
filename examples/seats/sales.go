package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/relock-go/relock/reentrant"
)

// errOldToken is returned when the row of a seat has seen a later hold: the caller's is over. Nothing was changed.
var errOldToken = errors.New("a later hold of the seat was seen")

// sales is the table of sales: a row for each seat, with its buyer, if any, and the highest token that it has seen. A
// hold shows its token when it begins. From then on no earlier hold can buy the seat, however late the statement of a
// paused server comes.
//
//	server 1  token 7   pick ────────── paused ────────────── buy: refused
//	server 2  token 9               pick ───────── buy
//	          highest   7           9              9
type sales struct {
	db       *sql.DB
	numbered bool
}

// openSales connects to the database.
func openSales(ctx context.Context, src source) (*sales, error) {
	db, err := sql.Open(src.driver, src.dsn)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	db.SetMaxOpenConns(8)
	if err := db.PingContext(ctx); err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("connect to %s: %w", src.shown, err)
	}
	return &sales{db: db, numbered: src.numbered}, nil
}

// create makes the table and its rows if they are missing. Existing sales stay.
func (s *sales) create(ctx context.Context) error {
	_, err := s.db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS seats (seat VARCHAR(8) NOT NULL PRIMARY KEY,
		buyer VARCHAR(64) NOT NULL, token BIGINT NOT NULL)`)
	if err != nil {
		return fmt.Errorf("make the table of sales: %w", err)
	}
	there, err := s.buyers(ctx, `SELECT seat, buyer FROM seats`)
	if err != nil {
		return err
	}
	for _, seat := range seats {
		if _, ok := there[seat]; ok {
			continue
		}
		if _, err := s.db.ExecContext(ctx, s.sql(`INSERT INTO seats (seat, buyer, token) VALUES (?, '', 0)`), string(seat)); err != nil {
			return fmt.Errorf("make the row of %v: %w", seat, err)
		}
	}
	return nil
}

// show shows the row a token, and returns the buyer of the seat; "" if it is not sold. It returns errOldToken.
func (s *sales) show(ctx context.Context, seat seat, token reentrant.Token) (buyer string, err error) {
	err = s.update(ctx, s.db, `UPDATE seats SET token = ? WHERE seat = ? AND token <= ?`, int64(token), string(seat), int64(token))
	if err == nil {
		err = s.db.QueryRowContext(ctx, s.sql(`SELECT buyer FROM seats WHERE seat = ?`), string(seat)).Scan(&buyer)
	}
	if err != nil {
		return "", fmt.Errorf("show token %d to %v: %w", token, seat, err)
	}
	return buyer, nil
}

// A sale is a seat to be sold under a hold.
type sale struct {
	seat  seat
	token reentrant.Token
}

// sell records the buyer of seats: all of them or none. It returns errOldToken if one of the holds is over. That
// includes a sale to another visitor, which needs a later hold. Selling to the same buyer again changes nothing.
func (s *sales) sell(ctx context.Context, buyer string, all ...sale) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin the sale: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // nothing after the commit
	for _, each := range all {
		err := s.update(ctx, tx, `UPDATE seats SET buyer = ?, token = ? WHERE seat = ? AND token <= ? AND buyer IN ('', ?)`,
			buyer, int64(each.token), string(each.seat), int64(each.token), buyer)
		if err != nil {
			return fmt.Errorf("sell %v with token %d: %w", each.seat, each.token, err)
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit the sale: %w", err)
	}
	return nil
}

// A runner runs statements: the database, or a transaction.
type runner interface {
	ExecContext(ctx context.Context, statement string, args ...any) (sql.Result, error)
}

// update runs a statement that finds its row if the token is not too old.
func (s *sales) update(ctx context.Context, on runner, statement string, args ...any) error {
	result, err := on.ExecContext(ctx, s.sql(statement), args...)
	if err != nil {
		return err
	}
	found, err := result.RowsAffected()
	if err == nil && found == 0 {
		err = errOldToken
	}
	return err
}

// sold returns the buyers of all sold seats.
func (s *sales) sold(ctx context.Context) (map[seat]string, error) {
	return s.buyers(ctx, `SELECT seat, buyer FROM seats WHERE buyer <> ''`)
}

func (s *sales) buyers(ctx context.Context, query string) (map[seat]string, error) {
	rows, err := s.db.QueryContext(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("list the sales: %w", err)
	}
	defer func() { _ = rows.Close() }()
	buyers := map[seat]string{}
	for rows.Next() {
		var where seat
		var buyer string
		if err := rows.Scan(&where, &buyer); err != nil {
			return nil, fmt.Errorf("list the sales: %w", err)
		}
		buyers[where] = buyer
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list the sales: %w", err)
	}
	return buyers, nil
}

// sql rewrites the question marks of a statement in the database's syntax.
func (s *sales) sql(statement string) string {
	if !s.numbered {
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

// close ends the connections.
func (s *sales) close() error { return s.db.Close() }
