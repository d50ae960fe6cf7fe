package main

import (
	"context"
	"fmt"

	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

func main() {
	ctx := context.Background()
	redis, err := redistest.New() // an embedded Redis, for tests and first tries
	if err != nil {
		panic(err)
	}
	defer redis.Close()
	session, err := reentrant.NewSession(redis.Backend()) // one per process
	if err != nil {
		panic(err)
	}
	defer session.Close(ctx)
	account := session.NewLock("account:7")
	err = account.Do(ctx, func(ctx context.Context) error { // one goroutine of one process at a time
		fmt.Println("holds:", account.HoldCount(ctx))
		return nil
	})
	fmt.Println("holds:", account.HoldCount(ctx), "error:", err)
}
