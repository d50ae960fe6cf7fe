// Package quorum is a lock over several independent masters, of which a majority decides. The face, package redisbackend,
// has its documentation.
package quorum
