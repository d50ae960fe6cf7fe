package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	_ "modernc.org/sqlite"

	"github.com/relock-go/relock/fence"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

// The stock of a shop, whose rows refuse a holder that comes too late.
func Example() {
	ctx := context.Background()
	server, err := redistest.New()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	backend, err := redisbackend.New(server.Client())
	if err != nil {
		panic(err)
	}
	session, err := reentrant.NewSession(backend)
	if err != nil {
		panic(err)
	}
	defer session.Close(ctx)
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		panic(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // each connection would have a memory of its own
	tokens := fence.NewTable(fence.SQLite, "tokens")
	if err := tokens.Create(ctx, db); err != nil {
		panic(err)
	}
	_, err = db.ExecContext(ctx, `CREATE TABLE stock (item TEXT, amount INTEGER); INSERT INTO stock VALUES ('apple', 10)`)
	if err != nil {
		panic(err)
	}

	sell := func(token fence.Token, some int) error {
		return tokens.Do(ctx, db, "apple", token, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `UPDATE stock SET amount = amount - ? WHERE item = 'apple'`, some)
			return err
		})
	}

	lock := session.NewLock("stock:apple")
	var old fence.Token
	for range 2 {
		err := lock.Do(ctx, func(ctx context.Context) error {
			token, err := lock.Token(ctx)
			if err != nil {
				return err
			}
			if old == 0 {
				old = token
			}
			return sell(token, 3)
		})
		fmt.Println("sold:", err == nil)
	}
	fmt.Println("refused:", errors.Is(sell(old, 3), fence.ErrStale))
	var left int
	if err := db.QueryRowContext(ctx, `SELECT amount FROM stock`).Scan(&left); err != nil {
		panic(err)
	}
	fmt.Println("left:", left)
	// Output:
	// sold: true
	// sold: true
	// refused: true
	// left: 4
}

// A service whose clients send the token of their hold.
func ExampleRequireToken() {
	var highest fence.Token // stands for what a database keeps
	service := httptest.NewServer(fence.RequireToken(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := fence.FromContext(r.Context())
		if token < highest {
			fence.Refuse(w, &fence.StaleError{Resource: r.URL.Path, Token: token, Highest: highest})
			return
		}
		highest = token
	})))
	defer service.Close()

	put := func(token fence.Token) error {
		request, err := http.NewRequest(http.MethodPut, service.URL+"/stock/7", nil)
		if err != nil {
			return err
		}
		fence.SetToken(request, token)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		return fence.FromResponse(response)
	}
	for _, token := range []fence.Token{7, 9, 7} {
		fmt.Println(put(token))
	}
	// Output:
	// <nil>
	// <nil>
	// the fencing token is stale: /stock/7 has seen token 9, which is higher than 7
}
