package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/relock-go/relock"
	"github.com/relock-go/relock/redisbackend/redistest"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // for all that waits: Open, Do and Close
	defer cancel()
	session, err := relock.Open(ctx, redistest.URL()) // an embedded Redis; yours is at "redis://localhost:6379"
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close(ctx) // waits until all locks are unlocked, or ctx ends; with WithLogger the log says for whom
	account := session.NewLock("account:7")
	err = account.Do(ctx, func(ctx context.Context) error { // one goroutine of one process at a time
		fmt.Println("holds:", account.HoldCount(ctx))
		return nil
	})
	fmt.Println("holds:", account.HoldCount(ctx), "error:", err)
}
