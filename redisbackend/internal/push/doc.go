// Package push listens to the channels on which a session is told of grants: one subscription per session, and in a Cluster
// one per slot that it waits in. Where Redisson's clients use the same locks, also to what those say.
package push
