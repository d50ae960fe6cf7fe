package cookbook

import (
	"context"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/reentrant"
)

// A Buffer is a list in Redis with room for so many items, which processes put in and take out.
type Buffer struct {
	client            rueidis.Client
	key               string
	room              int64
	lock              *reentrant.Lock
	notFull, notEmpty *reentrant.Condition
}

// NewBuffer makes a handle of the buffer with a key. Its lock has a name of its own: the key is the list's.
func NewBuffer(session *reentrant.Session, client rueidis.Client, key string, room int64) *Buffer {
	lock := session.NewLock("lock:" + key)
	return &Buffer{client: client, key: key, room: room, lock: lock,
		notFull: lock.NewCondition("not full"), notEmpty: lock.NewCondition("not empty")}
}

// Put puts an item in, and waits while there is no room.
func (b *Buffer) Put(ctx context.Context, item string) error {
	return b.lock.Do(ctx, func(ctx context.Context) error {
		if err := b.await(ctx, b.notFull, func(length int64) bool { return length < b.room }); err != nil {
			return err
		}
		if err := b.client.Do(ctx, b.client.B().Rpush().Key(b.key).Element(item).Build()).Error(); err != nil {
			return err
		}
		return b.notEmpty.Signal(ctx)
	})
}

// Take takes the oldest item out, and waits while there is none.
func (b *Buffer) Take(ctx context.Context) (item string, err error) {
	err = b.lock.Do(ctx, func(ctx context.Context) error {
		if err := b.await(ctx, b.notEmpty, func(length int64) bool { return length > 0 }); err != nil {
			return err
		}
		var err error
		item, err = b.client.Do(ctx, b.client.B().Lpop().Key(b.key).Build()).ToString()
		if err != nil {
			return err
		}
		return b.notFull.Signal(ctx)
	})
	return item, err
}

// await waits until the length is as it should be. It looks again after every wait: another may have come first.
func (b *Buffer) await(ctx context.Context, changed *reentrant.Condition, good func(length int64) bool) error {
	for {
		length, err := b.client.Do(ctx, b.client.B().Llen().Key(b.key).Build()).AsInt64()
		if err != nil || good(length) {
			return err
		}
		if err := changed.Await(ctx); err != nil {
			return err
		}
	}
}
