package relock_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/relock-go/relock"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

// A session with a prefix and a logger. Its Close gives the holders five seconds, and closes the connections.
func ExampleOpen() {
	ctx := context.Background()
	session, err := relock.Open(ctx, redistest.URL(), // redis://user:password@host:6379
		relock.WithBackend(redisbackend.WithPrefix("lock:")),
		relock.WithSession(reentrant.WithLogger(slog.Default())))
	if err != nil {
		fmt.Println(err) // the server's own words: wrong address, wrong password
		return
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		fmt.Println("closed:", session.Close(ending))
	}()
	err = session.NewLock("report").Do(ctx, func(context.Context) error {
		fmt.Println("one process at a time")
		return nil
	})
	fmt.Println("error:", err)
	// Output:
	// one process at a time
	// error: <nil>
	// closed: <nil>
}
