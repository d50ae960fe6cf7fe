package memory

import (
	"slices"

	"github.com/relock-go/relock/internal/protocol"
)

// SaveShared returns a function that sets the shared names back to what they are now. That simulates a replica that takes over
// and lacks all later changes.
func (b *Backend) SaveShared() (restore func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	saved := copyShared(b.shared)
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.shared = copyShared(saved)
		b.sayLocked("restore")
	}
}

func copyShared(shared map[string]*protocol.Shared) map[string]*protocol.Shared {
	copies := make(map[string]*protocol.Shared, len(shared))
	for name, s := range shared {
		one := *s
		one.Entries = slices.Clone(s.Entries)
		copies[name] = &one
	}
	return copies
}
