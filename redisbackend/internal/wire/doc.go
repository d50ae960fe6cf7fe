// Package wire has the format of all that is sent to Redis and received from it: the keys of a lock, the arguments and
// texts of the scripts, messages, errors, and the bounds of all numbers. It knows nothing of sessions.
package wire
