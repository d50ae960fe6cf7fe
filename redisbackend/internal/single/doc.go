// Package single implements a lock on one deployment: a single server, one with Sentinel, or a Cluster. It has the verbs
// of a lock by scripts, renewals, conditions, holds that move, and acquires that replicas acknowledge.
package single
