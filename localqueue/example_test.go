package localqueue_test

import (
	"context"
	"fmt"

	"github.com/relock-go/relock/localqueue"
)

// Alone, a queue is a fair re-entrant lock. The owner is named by the caller.
func ExampleQueue_Acquire() {
	var lock localqueue.Queue[string]
	ctx := context.Background()

	_ = lock.Acquire(ctx, "alice")
	_ = lock.Acquire(ctx, "alice") // again, without waiting for herself
	fmt.Println("bob:", lock.TryAcquire("bob"))
	fmt.Println("holds:", lock.HoldCount("alice"))

	_ = lock.Release("alice")
	_ = lock.Release("alice")
	fmt.Println("bob:", lock.TryAcquire("bob"))
	fmt.Println(lock.Release("alice"))
	// Output:
	// bob: false
	// holds: 2
	// bob: true
	// localqueue: not held by this owner
}

// As the local tier of a distributed lock: whoever claims the baton is the one goroutine that asks the server, and
// settles when the server has said yes.
func ExampleQueue_Claim() {
	var queue localqueue.Queue[string]
	askServer := func() bool { return true }
	tellServer := func() {}

	lock := func(owner string, done <-chan struct{}) bool {
		switch queue.Claim(owner, false, done, nil) {
		case localqueue.Claimed:
			if !askServer() {
				queue.Leave() // the next in line asks for itself
				return false
			}
			queue.Settle(1)
			return true
		case localqueue.Reentered:
			queue.Settle(queue.HoldCount(owner) + 1)
			return true
		default:
			return false
		}
	}
	unlock := func(owner string) {
		holds, ok := queue.Begin(owner)
		switch {
		case !ok:
			fmt.Println("not held")
		case holds > 1:
			queue.Settle(holds - 1)
		case queue.Pass(): // the next in line has the baton, and takes the lock over
		default: // nobody wants it here
			tellServer()
			queue.Leave()
		}
	}

	fmt.Println(lock("alice", nil), lock("alice", nil), queue.HoldCount("alice"))
	unlock("alice")
	unlock("alice")
	unlock("alice")
	fmt.Println("idle:", queue.Idle())
	// Output:
	// true true 2
	// not held
	// idle: true
}
