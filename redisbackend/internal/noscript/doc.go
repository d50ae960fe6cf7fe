// Package noscript implements the verbs of a lock without Lua: each reads the lock's keys under WATCH, decides by
// package protocol, and writes the changes with MULTI and EXEC.
package noscript
