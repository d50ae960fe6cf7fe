package reentrant_test

import (
	"context"
	"fmt"

	"github.com/relock-go/relock/internal/memory"
	"github.com/relock-go/relock/reentrant"
)

// Readers keep what they read in a cache, for as long as the version is the same.
func ExampleRWLock_Version() {
	ctx := context.Background()
	s, err := reentrant.NewSession(memory.New())
	if err != nil {
		panic(err)
	}
	defer func() { _ = s.Close(ctx) }()
	prices := s.NewRWLock("prices")

	var cached reentrant.Token
	read := func(ctx context.Context) error {
		version, err := prices.Version(ctx)
		if err != nil {
			return err
		}
		fmt.Println("cache is good:", version == cached)
		cached = version
		return nil
	}
	write := func(context.Context) error { return nil }
	for _, err := range []error{prices.RDo(ctx, read), prices.RDo(ctx, read), prices.Do(ctx, write), prices.RDo(ctx, read)} {
		if err != nil {
			panic(err)
		}
	}
	// Output:
	// cache is good: false
	// cache is good: true
	// cache is good: false
}

// A writer goes on as a reader: no other writer comes in between.
func ExampleRWLock_downgrade() {
	ctx := context.Background()
	s, err := reentrant.NewSession(memory.New())
	if err != nil {
		panic(err)
	}
	defer func() { _ = s.Close(ctx) }()
	l := s.NewRWLock("config")

	fmt.Println(l.Lock(ctx), l.RLock(ctx), l.Unlock(ctx), l.ReadHoldCount(ctx))
	fmt.Println("upgrade:", l.Lock(ctx))
	fmt.Println(l.RUnlock(ctx))
	// Output:
	// <nil> <nil> <nil> 1
	// upgrade: reentrant: lock "config": the read lock is held: give it up before asking for the write lock
	// <nil>
}

// At most ten calls to a partner's service run at a time, in all processes together.
func ExampleSemaphore() {
	ctx := context.Background()
	s, err := reentrant.NewSession(memory.New())
	if err != nil {
		panic(err)
	}
	defer func() { _ = s.Close(ctx) }()

	err = s.NewSemaphore("partner", 10).Do(ctx, 1, func(ctx context.Context) error {
		fmt.Println("calling")
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// calling
	// <nil>
}

// Each process draws its ids with a number of its own.
func ExampleSemaphore_AcquireSlot() {
	ctx := context.Background()
	s, err := reentrant.NewSession(memory.New())
	if err != nil {
		panic(err)
	}
	defer func() { _ = s.Close(ctx) }()

	node, err := s.NewSemaphore("node ids", 1024).AcquireSlot(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Println("this is node", node.Number())
	fmt.Println(node.Release(ctx))
	// Output:
	// this is node 0
	// <nil>
}

// Readers look at a queue while writers fill and empty it, and wait for what is missing.
func ExampleRWLock_NewCondition() {
	ctx := context.Background()
	s, err := reentrant.NewSession(memory.New())
	if err != nil {
		panic(err)
	}
	defer func() { _ = s.Close(ctx) }()
	l := s.NewRWLock("queue")
	var queue []string // guarded by the write side
	notEmpty := l.NewCondition("not empty")

	taken := make(chan string)
	go func() {
		err := l.Do(ctx, func(ctx context.Context) error {
			for len(queue) == 0 {
				if err := notEmpty.Await(ctx); err != nil { // gives the write side up meanwhile
					return err
				}
			}
			taken <- queue[0]
			queue = queue[1:]
			return nil
		})
		if err != nil {
			panic(err)
		}
	}()
	err = l.Do(ctx, func(ctx context.Context) error {
		queue = append(queue, "a letter")
		return notEmpty.Signal(ctx)
	})
	fmt.Println(err, <-taken)
	// Output: <nil> a letter
}

// A reader of a long report makes room as soon as an owner waits to write, in this process or another.
func ExampleRWLock_Wanted() {
	session, stop := exampleSession()
	defer stop()
	orders := session.NewRWLock("orders")
	report := reentrant.WithOwner(context.Background(), "report")
	if err := orders.RLock(report); err != nil {
		panic(err)
	}
	wanted, written := orders.Wanted(report), make(chan struct{})
	go func() {
		defer close(written)
		_ = orders.Do(reentrant.WithOwner(context.Background(), "order"), func(context.Context) error {
			fmt.Println("wrote one order")
			return nil
		})
	}()
	<-wanted // a real report looks here between its pages
	fmt.Println("the report makes room")
	_ = orders.RUnlock(report)
	<-written
	// Output:
	// the report makes room
	// wrote one order
}

// A spare connection is given back as soon as another caller waits for one.
func ExampleSemaphore_Wanted() {
	ctx := context.Background()
	session, stop := exampleSession()
	defer stop()
	connections := session.NewSemaphore("connections", 2)
	if err := connections.Acquire(ctx, 2); err != nil {
		panic(err)
	}
	wanted, got := connections.Wanted(), make(chan struct{})
	go func() {
		defer close(got)
		_ = connections.Do(ctx, 1, func(context.Context) error {
			fmt.Println("the other caller has one")
			return nil
		})
	}()
	<-wanted
	fmt.Println("one is given back")
	_ = connections.Release(ctx, 1)
	<-got
	_ = connections.Release(ctx, 1)
	// Output:
	// one is given back
	// the other caller has one
}
