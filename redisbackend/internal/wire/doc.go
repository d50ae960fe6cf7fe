// Package wire is what is sent to Redis and what comes back: the keys of a lock, the arguments and texts of the scripts,
// messages, errors, and the bounds of all numbers. It knows nothing of sessions.
package wire
