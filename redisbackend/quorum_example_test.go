package redisbackend_test

import (
	"context"
	"fmt"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

func ExampleNewQuorum() {
	ctx := context.Background()
	var clients []rueidis.Client
	var nodes []*redistest.Server
	for range 3 { // embedded servers; in production three machines that fail independently
		node, err := redistest.New()
		if err != nil {
			panic(err)
		}
		defer node.Close()
		nodes, clients = append(nodes, node), append(clients, node.Client())
	}
	quorum, err := redisbackend.NewQuorum(clients)
	if err != nil {
		panic(err)
	}
	session, err := reentrant.NewSession(quorum)
	if err != nil {
		panic(err)
	}
	defer session.Close(ctx)
	account := session.NewLock("account:7")

	nodes[2].Close() // two of three nodes are still a majority
	err = account.Do(ctx, func(ctx context.Context) error {
		fmt.Println("holds:", account.HoldCount(ctx))
		return nil
	})
	fmt.Println("error:", err)
	// Output:
	// holds: 1
	// error: <nil>
}
