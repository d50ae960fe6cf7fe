package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/relock-go/relock/fence"
	"github.com/relock-go/relock/reentrant"
)

// errBought is returned when another visitor has bought a seat. That visitor had a later hold. Nothing was changed.
var errBought = errors.New("another visitor has bought the seat")

// sales is the table of sales, a row for each seat with its buyer, if any, and a table with the highest token that each
// seat has seen. A hold shows its token when it begins. From then on no earlier hold can buy the seat, however late the
// statement of a paused server comes: it is refused with fence.ErrStale.
//
//	server 1  token 7   pick ────────── paused ────────────── buy: refused
//	server 2  token 9               pick ───────── buy
//	          highest   7           9              9
type sales struct {
	db      *sql.DB
	dialect fence.Dialect
	tokens  *fence.Table
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
	return &sales{db: db, dialect: src.dialect, tokens: fence.NewTable(src.dialect, "seats_tokens")}, nil
}

// create makes the tables, and the rows of the seats, if they are missing. Sales that are there stay.
func (s *sales) create(ctx context.Context) error {
	_, err := s.db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS seats (seat VARCHAR(8) NOT NULL PRIMARY KEY,
		buyer VARCHAR(64) NOT NULL)`)
	if err != nil {
		return fmt.Errorf("make the table of sales: %w", err)
	}
	if err := s.tokens.Create(ctx, s.db); err != nil {
		return err
	}
	there, err := s.buyers(ctx, `SELECT seat, buyer FROM seats`)
	if err != nil {
		return err
	}
	for _, seat := range seats {
		if _, ok := there[seat]; ok {
			continue
		}
		if _, err := s.db.ExecContext(ctx, s.sql(`INSERT INTO seats (seat, buyer) VALUES (?, '')`), string(seat)); err != nil {
			return fmt.Errorf("make the row of %v: %w", seat, err)
		}
	}
	return nil
}

// show shows a seat the token of a hold, and returns the buyer of the seat; "" if it is not sold. If the seat has seen a higher
// token, it returns fence.ErrStale.
func (s *sales) show(ctx context.Context, seat seat, token reentrant.Token) (buyer string, err error) {
	err = s.tokens.Check(ctx, s.db, string(seat), token)
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

// sell records the buyer of seats: all of the seats or none. It returns fence.ErrStale if one of the holds is over, and
// errBought if another visitor has bought one of the seats. Selling a seat to the same buyer again changes nothing.
func (s *sales) sell(ctx context.Context, buyer string, all ...sale) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin the sale: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after the commit this does nothing
	for _, each := range all {
		err := s.tokens.Check(ctx, tx, string(each.seat), each.token)
		if err == nil {
			err = s.record(ctx, tx, buyer, each.seat)
		}
		if err != nil {
			return fmt.Errorf("sell %v with token %d: %w", each.seat, each.token, err)
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit the sale: %w", err)
	}
	return nil
}

// record records the buyer of a seat that has no other buyer.
func (s *sales) record(ctx context.Context, tx *sql.Tx, buyer string, seat seat) error {
	result, err := tx.ExecContext(ctx, s.sql(`UPDATE seats SET buyer = ? WHERE seat = ? AND buyer IN ('', ?)`), buyer, string(seat), buyer)
	if err != nil {
		return err
	}
	found, err := result.RowsAffected()
	if err == nil && found == 0 {
		err = errBought
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
	if s.dialect != fence.Postgres {
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
