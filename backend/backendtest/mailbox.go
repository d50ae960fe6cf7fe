package backendtest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/relock-go/relock/backend"
)

// A mailbox is a Sink that keeps all messages to a session.
type mailbox struct {
	mu      sync.Mutex
	grants  []backend.Grant
	signals map[string]map[uint64]bool // lock and ticket -> whether the waiter got a place
	wanted  map[string]uint64          // lock -> the latest epoch that another session wants
	taken   map[string]uint64          // lock -> the latest epoch whose hold another session has resumed
	resumes int
	news    chan struct{} // closed, and replaced, at the next message
	shares  shareMail
}

func newMailbox() *mailbox { return &mailbox{news: make(chan struct{})} }

// Granted keeps the grant.
func (m *mailbox) Granted(g backend.Grant) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.grants = append(m.grants, g)
	m.wakeLocked()
}

// Signalled keeps the signal.
func (m *mailbox) Signalled(name string, ticket uint64, placed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.signals == nil {
		m.signals = make(map[string]map[uint64]bool)
	}
	if m.signals[name] == nil {
		m.signals[name] = make(map[uint64]bool)
	}
	m.signals[name][ticket] = placed
	m.wakeLocked()
}

// Wanted keeps the epoch.
func (m *mailbox) Wanted(name string, epoch uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.wanted == nil {
		m.wanted = make(map[string]uint64)
	}
	m.wanted[name] = max(m.wanted[name], epoch)
	m.wakeLocked()
}

// Taken keeps the epoch.
func (m *mailbox) Taken(name string, epoch uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.taken == nil {
		m.taken = make(map[string]uint64)
	}
	m.taken[name] = max(m.taken[name], epoch)
	m.wakeLocked()
}

// lost returns the latest epoch of a lock whose hold another session has resumed.
func (m *mailbox) lost(name string) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.taken[name]
}

// asked returns the latest epoch of a lock that another session wants.
func (m *mailbox) asked(name string) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wanted[name]
}

// forget forgets that another session wants a lock.
func (m *mailbox) forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.wanted, name)
}

// told returns whether a ticket's signal came with a place. It returns nil if there was no signal.
func (m *mailbox) told(name string, ticket uint64) *bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if placed, ok := m.signals[name][ticket]; ok {
		return &placed
	}
	return nil
}

// Reconnected counts how often the channel has been reopened.
func (m *mailbox) Reconnected() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resumes++
	m.wakeLocked()
}

func (m *mailbox) wakeLocked() {
	close(m.news)
	m.news = make(chan struct{})
}

func (m *mailbox) resumed() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.resumes
}

// all returns all grants of a lock that have arrived.
func (m *mailbox) all(name string) []backend.Grant {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(m.grants), func(g backend.Grant) bool { return g.Name != name })
}

// wait waits for the grant of an attempt. It gives up when the channel is reopened or d is over.
func (m *mailbox) wait(ctx context.Context, name string, epoch uint64, d time.Duration) (backend.Grant, bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for mark := m.resumed(); ; {
		m.mu.Lock()
		i := slices.IndexFunc(m.grants, func(g backend.Grant) bool { return g.Name == name && g.Epoch == epoch })
		resumes, news := m.resumes, m.news
		var g backend.Grant
		if i >= 0 {
			g = m.grants[i]
		}
		m.mu.Unlock()
		if i >= 0 || resumes != mark {
			return g, i >= 0
		}
		select {
		case <-news:
		case <-timer.C:
			return backend.Grant{}, false
		case <-ctx.Done():
			return backend.Grant{}, false
		}
	}
}
