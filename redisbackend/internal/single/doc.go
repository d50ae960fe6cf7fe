// Package single is one deployment, alone, with Sentinel or as a Cluster: the verbs of a lock by scripts, renewals,
// conditions, holds that move, and acquires that replicas acknowledge.
package single
