// Package single implements a lock on one deployment, a single server, with Sentinel or as a Cluster: the verbs of a
// lock by scripts, renewals, conditions, holds that move, and acquires that replicas acknowledge.
package single
