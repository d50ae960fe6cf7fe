package main

import (
	"context"
	"sync/atomic"
)

// A producer puts its items into the buffer, in order. Of n producers, the one with number k has the items k+1, k+1+n, k+1+2n,
// …, so each item has exactly one producer.
type producer struct {
	number    int
	producers int
	items     int64 // the number of items of all producers
	capacity  int64
	store     *store
	did       *tally
}

// step puts the next item. Redis keeps the producer's progress, and changes it in one step together with the buffer. So the
// process keeps no state that a SIGKILL could destroy.
func (p producer) step(ctx context.Context, token uint64) (outcome, error) {
	now, err := p.store.look(ctx, token, p.number)
	if err != nil {
		return 0, err
	}
	item := int64(p.number) + 1 + now.made*int64(p.producers)
	switch {
	case item > p.items || now.taken >= p.items: // the second is true only if the lock fails: then no consumer takes any more
		return finished, nil
	case now.length >= p.capacity:
		return blocked, nil
	}
	if err := p.store.put(ctx, token, p.number, item); err != nil {
		return 0, err
	}
	p.did.put.Add(1)
	return moved, nil
}

// A consumer takes items of any producer out of the buffer.
type consumer struct {
	process string
	items   int64 // the number of items that there will be
	store   *store
	did     *tally
}

// step takes the first item. It first looks which item that is, and then moves the item to those that were taken.
func (c consumer) step(ctx context.Context, token uint64) (outcome, error) {
	now, err := c.store.look(ctx, token, 0)
	switch {
	case err != nil:
		return 0, err
	case now.taken >= c.items:
		return finished, nil
	case now.length == 0:
		return blocked, nil
	}
	if err := c.store.take(ctx, token, now.first, c.process); err != nil {
		return 0, err
	}
	c.did.taken.Add(1)
	return moved, nil
}

// tally counts what a process's workers do.
type tally struct {
	put, taken atomic.Int64
	idle       struct{ full, empty atomic.Int64 } // how often a worker waited because the buffer was full, or empty
	lost       atomic.Int64                       // holds that were lost
}

// repeat makes a worker's steps until there is no more to do.
func repeat(ctx context.Context, t turnstile, s step) error {
	for {
		if more, err := t.turn(ctx, s); err != nil || !more {
			return err
		}
	}
}
