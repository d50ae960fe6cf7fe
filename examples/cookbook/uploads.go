package cookbook

import (
	"context"
	"crypto/rand"

	"github.com/relock-go/relock/reentrant"
)

// UploadLocker gives out a lock for each upload of a server for resumable uploads. It has the methods of tusd v2's Locker,
// and its locks those of tusd's Lock.
type UploadLocker struct{ session *reentrant.Session }

// UploadLock is what tusd calls a Lock.
type UploadLock interface {
	Lock(ctx context.Context, requestRelease func()) error
	Unlock() error
}

// NewLock makes a lock for one request about an upload.
func (l UploadLocker) NewLock(id string) (UploadLock, error) {
	return &upload{lock: l.session.NewLock("upload:" + id)}, nil
}

// An upload is one request's lock. The server may unlock it in another goroutine, so the owner has a name of its own.
type upload struct {
	lock  *reentrant.Lock
	owner context.Context // set by Lock
	done  chan struct{}   // closed by Unlock
}

// Lock waits for the upload. From then on requestRelease is called once, when another request waits for it or the lock is
// lost: the server then ends this one.
func (u *upload) Lock(ctx context.Context, requestRelease func()) error {
	ctx = reentrant.WithOwner(ctx, rand.Text())
	if err := u.lock.Lock(ctx); err != nil {
		return err
	}
	u.owner, u.done = context.WithoutCancel(ctx), make(chan struct{})
	wanted, lost := u.lock.Wanted(u.owner), u.lock.Lost(u.owner)
	go func() {
		select {
		case <-wanted:
			requestRelease()
		case <-lost:
			requestRelease()
		case <-u.done:
		}
	}()
	return nil
}

// Unlock gives the upload back.
func (u *upload) Unlock() error {
	close(u.done)
	return u.lock.Unlock(u.owner)
}
