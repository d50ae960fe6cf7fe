// Package quorum implements a lock over several independent masters, of which a majority decides. Package redisbackend
// has its documentation.
package quorum
