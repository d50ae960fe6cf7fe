// Package noscript is the verbs of a lock without Lua: each reads what there is under WATCH, decides by package protocol, and
// writes it back by MULTI and EXEC.
package noscript
