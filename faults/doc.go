// Package faults shows what the lock does when something breaks: connections are killed, replies dropped, scripts
// flushed, servers stopped, while many owners of several sessions use it on a real Redis. It is a module of its own,
// so that the libraries that break things are nobody's dependency. It holds only tests.
package faults
