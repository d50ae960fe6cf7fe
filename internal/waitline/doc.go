// Package waitline is the line of waiters that localqueue and sharedqueue have in common: its nodes, their order, the
// spare nodes for later waiters, and the decision between a turn and a cancellation that come at the same moment.
//
// The mutex of a queue guards its lines, its spares and their nodes. A goroutine waits in three steps:
//
//	with the mutex      take a node of the Spares, fill in its Value and Push it
//	without the mutex   Await
//	with the mutex      TakeTurn, or Remove the node if its turn has not come; Keep the node
//
// Another goroutine grants the turn in one critical section: it takes the node out of its line, writes to the node's Value what
// the waiter is to find, and wakes the node. So whether a node is in line decides between a turn and a cancellation: a node
// that is not in line has its turn, and one that is in line can still leave.
//
// A goroutine that has no more to do than to take its turn can leave the third step to its next critical section.
package waitline
