package localqueue_test

import (
	"fmt"

	"github.com/relock-go/relock/localqueue"
)

// A queue can be the local tier of a distributed lock: the goroutine that claims the baton asks the server, and settles when
// the server has granted the lock.
func ExampleQueue_Claim() {
	var queue localqueue.Queue[string]
	acquireAtServer := func() bool { return true }
	releaseAtServer := func() {}

	lock := func(owner string, done <-chan struct{}) bool {
		switch queue.Claim(owner, localqueue.Fair, done, nil) {
		case localqueue.Claimed:
			if !acquireAtServer() {
				queue.Leave() // the next waiter asks the server itself
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
		case queue.Pass(): // the next waiter has the baton, and takes over the lock
		default: // no goroutine of this process waits
			releaseAtServer()
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
