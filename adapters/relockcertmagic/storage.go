// Package relockcertmagic gives certmagic Relock's locks, over any certmagic.Storage, so that many processes take
// turns:
//
//	certmagic.Default.Storage = relockcertmagic.New(&certmagic.FileStorage{Path: shared}, session)
//
// Certificates stay where the storage keeps them; Lock, TryLock and Unlock are Relock's. Its leases are renewed while the
// process lives, and waiters are woken instead of polling.
package relockcertmagic

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/relock-go/relock/reentrant"
)

// A Storage is a certmagic.Storage that takes its locks from a session. It is safe for concurrent use.
type Storage struct {
	certmagic.Storage
	session *reentrant.Session

	mu     sync.Mutex          // a leaf: no other mutex is locked under it
	owners map[string][]string // by name: the owners that took the lock and have not unlocked it, oldest first
}

var (
	_ certmagic.Storage          = (*Storage)(nil)
	_ certmagic.TryLocker        = (*Storage)(nil)
	_ certmagic.LockLeaseRenewer = (*Storage)(nil)
)

// New returns a storage that keeps its data in storage and takes its locks from session.
func New(storage certmagic.Storage, session *reentrant.Session) *Storage {
	return &Storage{Storage: storage, session: session, owners: make(map[string][]string)}
}

// Lock takes the lock of a name and waits for it as long as ctx lasts. Every call is an owner of its own, as certmagic
// asks: a second Lock of one goroutine waits. Errors are those of [reentrant.Lock.Lock].
func (s *Storage) Lock(ctx context.Context, name string) error {
	owner := rand.Text()
	err := s.session.NewLock(name).Lock(reentrant.WithOwner(ctx, owner))
	if err == nil {
		s.add(name, owner)
	}
	return err
}

// TryLock makes one attempt to take the lock of a name. It returns false if another owner has it. Errors are those of
// [reentrant.Lock.TryLock].
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	owner := rand.Text()
	ok, err := s.session.NewLock(name).TryLock(reentrant.WithOwner(ctx, owner))
	if ok {
		s.add(name, owner)
	}
	return ok, err
}

// Unlock gives up the lock of a name, from any goroutine of this process; it works under a ctx that has ended. It returns
// an error for which errors.Is(err, [reentrant.ErrNotHeld]) if this process did not take the lock, and
// [reentrant.ErrLost] if the hold was lost before. If a hold was lost and the process has taken the lock again
// before the first Unlock, that Unlock is for the lost hold.
func (s *Storage) Unlock(ctx context.Context, name string) error {
	owner, ok := s.remove(name)
	if !ok {
		return fmt.Errorf("relockcertmagic: unlock %q: %w", name, reentrant.ErrNotHeld)
	}
	return s.session.NewLock(name).Unlock(reentrant.WithOwner(ctx, owner))
}

// RenewLockLease implements certmagic.LockLeaseRenewer. The session renews its leases by itself, so this only checks that
// the lock is still held: it returns [reentrant.ErrNotHeld] or [reentrant.ErrLost] if not. The duration is not used.
func (s *Storage) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	s.mu.Lock()
	owners := s.owners[name]
	s.mu.Unlock()
	if len(owners) == 0 {
		return fmt.Errorf("relockcertmagic: renew %q: %w", name, reentrant.ErrNotHeld)
	}
	_, err := s.session.NewLock(name).TrustedUntil(reentrant.WithOwner(ctx, owners[len(owners)-1]))
	return err
}

func (s *Storage) add(name, owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owners[name] = append(s.owners[name], owner)
}

// remove forgets the owner that took the lock of a name first, and returns it.
func (s *Storage) remove(name string) (owner string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	owners := s.owners[name]
	if len(owners) == 0 {
		return "", false
	}
	if len(owners) == 1 {
		delete(s.owners, name)
	} else {
		s.owners[name] = owners[1:]
	}
	return owners[0], true
}
