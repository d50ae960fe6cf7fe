// Package redisson lets sessions share locks with Redisson's clients. It listens to the messages that they publish when
// they free a lock, and offers the lock to the first waiter.
package redisson
