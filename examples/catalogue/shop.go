package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/relock-go/relock/reentrant"
)

// lockName is the lock's name, and so its key in Redis.
const lockName = "catalogue"

// A shop serves prices and changes them.
type shop interface {
	// serve serves the price of an item. If check is true, it also compares the price with the row, and reports whether the
	// price was stale.
	serve(ctx context.Context, item int, check bool) (stale bool, err error)
	// change changes the price of an item.
	change(ctx context.Context, item int, cents int64) error
}

// lockedShop uses its cache for as long as the cache has the version of the lock.
type lockedShop struct {
	lock  *reentrant.RWLock
	cache *cache
	store *store
}

func (s *lockedShop) serve(ctx context.Context, item int, check bool) (stale bool, err error) {
	if err := s.lock.RLock(ctx); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, s.lock.RUnlock(ctx)) }()
	version, err := s.lock.Version(ctx)
	if err != nil {
		return false, fmt.Errorf("version: %w", err)
	}
	list, err := s.cache.get(ctx, version, func(l *list) bool { return l.version == version })
	if err != nil || !check {
		return false, err
	}
	row, err := s.store.row(ctx, item)
	return row != list.prices[item], err
}

func (s *lockedShop) change(ctx context.Context, item int, cents int64) error {
	return s.lock.Do(ctx, func(ctx context.Context) error {
		token, err := s.lock.Token(ctx)
		if err != nil {
			return fmt.Errorf("token: %w", err)
		}
		return s.store.set(ctx, item, price{cents: cents, token: int64(token)})
	})
}

// believeFor is how long a cache is used without a lock.
const believeFor = 100 * time.Millisecond

// hopefulShop uses its cache for a while without checking it.
type hopefulShop struct {
	cache *cache
	store *store
}

func (s *hopefulShop) serve(ctx context.Context, item int, check bool) (stale bool, err error) {
	list, err := s.cache.get(ctx, 0, func(l *list) bool { return time.Since(l.loaded) < believeFor })
	if err != nil || !check {
		return false, err
	}
	row, err := s.store.row(ctx, item)
	return row != list.prices[item], err
}

func (s *hopefulShop) change(ctx context.Context, item int, cents int64) error {
	return s.store.raise(ctx, item, cents)
}

// plainShop reads every price from the database.
type plainShop struct{ store *store }

func (s *plainShop) serve(ctx context.Context, item int, _ bool) (stale bool, err error) {
	s.store.queries.Add(1)
	_, err = s.store.row(ctx, item)
	return false, err
}

func (s *plainShop) change(ctx context.Context, item int, cents int64) error {
	return s.store.raise(ctx, item, cents)
}
