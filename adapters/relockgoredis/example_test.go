package relockgoredis_test

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/relock-go/relock/adapters/relockgoredis"
	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

// Session opens a session at the Redis of a go-redis client: of one server, of Sentinel or of a Cluster.
func Session(ctx context.Context, client redis.UniversalClient) (*reentrant.Session, error) {
	backend, err := relockgoredis.Open(ctx, client)
	if err != nil {
		return nil, err
	}
	return reentrant.NewSession(backend)
}

func ExampleOpen() {
	server, err := redistest.New()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Protocol: 2})
	defer func() { _ = client.Close() }()

	ctx := context.Background()
	session, err := Session(ctx, client)
	if err != nil {
		panic(err)
	}
	defer func() { _ = session.Close(ctx) }()
	err = session.NewLock("account:7").Do(ctx, func(ctx context.Context) error {
		fmt.Println("holders:", client.HLen(ctx, "account:7").Val())
		return nil
	})
	fmt.Println("error:", err)
	// Output:
	// holders: 1
	// error: <nil>
}
