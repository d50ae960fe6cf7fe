package reentrant_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

// exampleSession is a session on an embedded Redis.
func exampleSession() (session *reentrant.Session, stop func()) {
	redis, err := redistest.New()
	if err != nil {
		panic(err)
	}
	session, err = reentrant.NewSession(redis.Backend())
	if err != nil {
		panic(err)
	}
	return session, func() {
		_ = session.Close(context.Background())
		redis.Close()
	}
}

// Every replica starts the job, and one of them runs it.
func ExampleLock_TryDo() {
	session, stop := exampleSession()
	defer stop()
	report := session.NewLock("nightly report")
	job := func(replica string) {
		ctx := reentrant.WithOwner(context.Background(), replica)
		ran, err := report.TryDo(ctx, func(context.Context) error {
			other := reentrant.WithOwner(context.Background(), "another replica")
			ran, err := report.TryDo(other, func(context.Context) error { return nil })
			fmt.Println("the other ran:", ran, err)
			return nil
		})
		fmt.Println(replica, "ran:", ran, err)
	}
	job("replica 1")
	// Output:
	// the other ran: false <nil>
	// replica 1 ran: true <nil>
}

// This section returns a result.
func ExampleDoValue() {
	session, stop := exampleSession()
	defer stop()
	invoices, last := session.NewLock("invoices"), 41
	number, err := reentrant.DoValue(context.Background(), invoices.Do, func(context.Context) (int, error) {
		last++
		return last, nil
	})
	fmt.Println(number, err)
	// Output: 42 <nil>
}

// A program can write the state of a lock into a line of a log.
func ExampleState() {
	session, stop := exampleSession()
	defer stop()
	ctx := reentrant.WithOwner(context.Background(), "worker-7")
	report := session.NewLock("report")
	_ = report.Do(ctx, func(ctx context.Context) error {
		state, err := report.Inspect(ctx)
		before, _, _ := strings.Cut(state.String(), " of session") // a random id
		fmt.Println(before, err)
		return err
	})
	// Output: held once by owner ~worker-7 <nil>
}

// A caller that finds another caller in the queue gets an error, and does not wait.
func ExampleWithMaxWaiting() {
	session, stop := exampleSession()
	defer stop()
	ctx := context.Background()
	report := session.NewLock("report", reentrant.WithMaxWaiting(1))
	err := report.Do(reentrant.WithOwner(ctx, "first"), func(context.Context) error {
		waits, leave := context.WithCancel(reentrant.WithOwner(ctx, "second"))
		defer leave()
		go func() { _ = report.Do(waits, func(context.Context) error { return nil }) }()
		for report.QueueLength() == 0 {
			runtime.Gosched()
		}
		err := report.Lock(reentrant.WithOwner(ctx, "third"))
		fmt.Println(errors.Is(err, reentrant.ErrQueueFull), err)
		return nil
	})
	fmt.Println(err)
	// Output:
	// true reentrant: lock "report": queue full: 1 waits already
	// <nil>
}

// A job that every machine starts on the hour runs on one of them, although it is short and their clocks differ.
func ExampleWithAtLeast() {
	session, stop := exampleSession()
	defer stop()
	ctx := context.Background()
	report := session.NewLock("report", reentrant.WithAtLeast(10*time.Minute))
	for range 2 {
		ran, err := report.TryDo(ctx, func(context.Context) error { return nil })
		fmt.Println(ran, err)
	}
	state, err := report.Inspect(ctx)
	fmt.Println(state.Locked, state.Unlocked, err)
	// Output:
	// true <nil>
	// false <nil>
	// true true <nil>
}

// The session closes the backend below it.
func ExampleWithAfterClose() {
	redis, err := redistest.New()
	if err != nil {
		panic(err)
	}
	session, err := reentrant.NewSession(redis.Backend(), reentrant.WithAfterClose(redis.Close))
	if err != nil {
		panic(err)
	}
	fmt.Println(session.Close(context.Background()))
	// Output: <nil>
}

// The job takes the first printer that becomes free within a second.
func ExampleTryAnyFor() {
	session, stop := exampleSession()
	defer stop()
	ctx := context.Background()
	first, second := session.NewLock("printer 1"), session.NewLock("printer 2")
	busy := reentrant.WithOwner(ctx, "another")
	if err := first.Lock(busy); err != nil {
		panic(err)
	}
	printer, err := reentrant.TryAnyFor(ctx, time.Second, first, second)
	if err != nil {
		panic(err)
	}
	fmt.Println(printer.Name())
	fmt.Println(printer.Unlock(ctx), first.Unlock(busy))
	// Output:
	// printer 2
	// <nil> <nil>
}

// The batch goes on as long as no other owner waits for its lock.
func ExampleLock_Wanted() {
	session, stop := exampleSession()
	defer stop()
	index := session.NewLock("search index")
	rebuild := reentrant.WithOwner(context.Background(), "rebuild")
	if err := index.Lock(rebuild); err != nil {
		panic(err)
	}
	wanted, updated := index.Wanted(rebuild), make(chan struct{})
	go func() {
		defer close(updated)
		update := reentrant.WithOwner(context.Background(), "update")
		_ = index.Do(update, func(context.Context) error {
			fmt.Println("updated one document")
			return nil
		})
	}()
	<-wanted // a real batch looks here between its steps
	fmt.Println("the rebuild makes room")
	_ = index.Unlock(rebuild)
	<-updated
	// Output:
	// the rebuild makes room
	// updated one document
}

// InspectAll returns the state of a whole hall in one round trip, instead of one for each seat.
func ExampleSession_InspectAll() {
	session, stop := exampleSession()
	defer stop()
	ctx := reentrant.WithOwner(context.Background(), "Ada")
	if err := session.NewLock("seat 2").Lock(ctx); err != nil {
		panic(err)
	}
	seats := []string{"seat 1", "seat 2", "seat 3"}
	states, err := session.InspectAll(ctx, seats...)
	if err != nil {
		panic(err)
	}
	for i, st := range states {
		fmt.Println(seats[i], "taken:", st.Locked)
	}
	_ = session.NewLock("seat 2").Unlock(ctx)
	// Output:
	// seat 1 taken: false
	// seat 2 taken: true
	// seat 3 taken: false
}
