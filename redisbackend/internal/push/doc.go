// Package push listens to the channels on which a session receives grants: one subscription per session, and in a Cluster one
// per hash tag of locks that it waits for. Where Redisson's clients use the same locks, it listens to their channels too.
package push
