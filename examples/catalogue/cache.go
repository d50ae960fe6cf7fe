package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/relock-go/relock/reentrant"
)

// A list is the price list as it stood at a version.
type list struct {
	version reentrant.Token // 0 without a lock
	loaded  time.Time
	prices  []price
}

// A cache is a process's copy of the price list.
type cache struct {
	store   *store
	loading sync.Mutex // one worker loads at a time; other workers then find what it loaded
	latest  atomic.Pointer[list]
}

// get returns the latest list if the list is good. Otherwise it loads the list, with the given version.
func (c *cache) get(ctx context.Context, version reentrant.Token, good func(*list) bool) (*list, error) {
	if l := c.latest.Load(); l != nil && good(l) {
		return l, nil
	}
	c.loading.Lock()
	defer c.loading.Unlock()
	if l := c.latest.Load(); l != nil && good(l) {
		return l, nil
	}
	loaded := time.Now()
	prices, err := c.store.list(ctx)
	if err != nil {
		return nil, err
	}
	l := &list{version: version, loaded: loaded, prices: prices}
	c.latest.Store(l)
	return l, nil
}
