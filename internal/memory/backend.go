package memory

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/protocol"
)

// A Backend is one server and its connections. It is safe for concurrent use.
type Backend struct {
	start time.Time         // time at which the server's clock was zero; immutable
	trace func(line string) // immutable; nil for no trace

	mu       sync.Mutex // guards the fields below
	fault    Fault
	skew     time.Duration // how far the server's clock is ahead of time.Now
	locks    map[string]*protocol.Lock
	shared   map[string]*protocol.Shared
	conns    []*Conn               // open connections
	names    map[string]string     // session's id -> name
	cut      map[string]bool       // by session's id: whether the session is partitioned
	registry map[string]registered // by session's id
	tries    map[Op]int            // how often each Op, with a Try of 0, has come since the fault was set
	executed map[Verb]int
	grants   []string // the trace's lines about messages of the command being executed
}

var _ backend.Backend = (*Backend)(nil)

// An Option sets a property of a Backend.
type Option func(*Backend)

// WithFault sets the Fault that decides what happens to every command and message. Without the option all of them pass.
func WithFault(f Fault) Option { return func(b *Backend) { b.fault = f } }

// WithTrace sets a function that is called with a line for every verb that is executed, such as
//
//	acquire A orders e1 owner=7 → granted 1
//
// and for other events at the server. Tokens follow the server's clock, which starts at 0: in a bubble they are
// the same every time. f must not call the Backend.
func WithTrace(f func(line string)) Option { return func(b *Backend) { b.trace = f } }

// New starts a server. There is nothing to stop.
func New(opts ...Option) *Backend {
	b := &Backend{
		start: time.Now(), locks: make(map[string]*protocol.Lock), shared: make(map[string]*protocol.Shared), names: make(map[string]string), cut: make(map[string]bool),
		registry: make(map[string]registered), tries: make(map[Op]int), executed: make(map[Verb]int),
	}
	for _, opt := range opts {
		opt(b)
	}
	return b
}

// Connect opens a session's connection. The Conn's Close ends the connection and its goroutine.
func (b *Backend) Connect(ctx context.Context, session string, sink backend.Sink) (backend.Conn, error) {
	c := newConn(b, session, sink)
	op := Op{Session: b.Name(session), Verb: Connect}
	_, err := call(ctx, c, op, func(protocol.Instant) (struct{}, line) { return struct{}{}, op.String })
	if err != nil {
		return nil, fmt.Errorf("memory: connect: %w", err)
	}
	c.open()
	return c, nil
}

// SetFault replaces the Fault; with nil all commands and messages pass. Op.Try counts from 1 again.
func (b *Backend) SetFault(f Fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fault = f
	clear(b.tries)
}

// SetSkew sets the server's clock ahead of time.Now by d, or behind it if d is negative. As in Redis, the new time decides when
// leases end, and sessions notice the jump with the next reply.
func (b *Backend) SetSkew(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.skew = d
}

// Partition disconnects a session (by its name or id), or reconnects it. While the session is disconnected, its commands do not
// arrive, and fail with unknown outcomes when their contexts end; messages to it are lost. Commands that were sent before the
// call still arrive. On reconnection the session's Sink is notified.
func (b *Backend) Partition(session string, on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := b.idLocked(session)
	if b.cut[id] == on {
		return
	}
	b.cut[id] = on
	for _, c := range b.conns {
		if c.session == id && !on {
			c.reconnectLocked()
		}
	}
}

// Publish sends a session a message that no command caused, as any client can that may publish to the session's channel. m.At
// counts from the moment of the call.
func (b *Backend) Publish(session string, m protocol.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m.At += b.clockLocked()
	b.publishLocked(b.idLocked(session), m)
	b.grants = nil // the trace shows only messages that commands cause
}

// Flush forgets all locks, as FLUSHALL does.
func (b *Backend) Flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.locks)
	clear(b.shared)
	clear(b.registry)
	b.sayLocked("flush")
}

// Restart breaks and reopens every connection: commands that wait for a reply fail with unknown outcomes (and are executed if
// they have not arrived yet), undelivered messages are lost, and every Sink is notified. The locks stay, as with a Redis that
// writes everything to disk. For a Redis that does not, call Flush too.
func (b *Backend) Restart() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sayLocked("restart")
	for _, c := range b.conns {
		c.reconnectLocked()
	}
}

// Count returns how many commands of a verb were executed, copies included; for Push, how many messages were delivered.
func (b *Backend) Count(v Verb) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.executed[v]
}

// Commands returns how many commands were executed in total, apart from Connect.
func (b *Backend) Commands() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for v, count := range b.executed {
		if v != Push && v != Connect {
			n += count
		}
	}
	return n
}

// Name returns a session's name in traces and faults: a letter in the order of connecting. After Z the letters come again, with
// a number. An id that is itself a single capital letter is its own name.
func (b *Backend) Name(session string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.names[session] == "" {
		b.names[session] = b.nextNameLocked(session)
	}
	return b.names[session]
}

func (b *Backend) nextNameLocked(session string) string {
	if len(session) == 1 && session[0] >= 'A' && session[0] <= 'Z' {
		return session
	}
	for i := 0; ; i++ {
		name := string(rune('A' + i%26))
		if i >= 26 {
			name += fmt.Sprint(i / 26)
		}
		if _, taken := b.idOfNameLocked(name); !taken {
			return name
		}
	}
}

// idLocked returns a session's id, given its id or name.
func (b *Backend) idLocked(session string) string {
	if id, ok := b.idOfNameLocked(session); ok {
		return id
	}
	return session
}

func (b *Backend) idOfNameLocked(name string) (string, bool) {
	for id, n := range b.names {
		if n == name {
			return id, true
		}
	}
	return "", false
}

// judge sets op.Try and returns the fault's verdict.
func (b *Backend) judge(op Op) Verdict {
	fault := b.number(&op)
	if fault == nil {
		return Pass
	}
	return fault(op)
}

func (b *Backend) number(op *Op) Fault {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fault != nil {
		b.tries[*op]++
		op.Try = b.tries[*op]
	}
	return b.fault
}

// execute runs one command. It returns the reply and, as a reply shows the server's time, how far the server's clock is ahead.
func execute[R any](b *Backend, v Verb, note line, run func(now protocol.Instant) (R, line)) (R, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.executed[v]++
	answer, done := run(b.clockLocked())
	if b.trace != nil {
		b.trace(done() + note())
	}
	for _, grant := range b.grants {
		b.trace(grant)
	}
	b.grants = nil
	return answer, b.skew
}

// refuse traces a command that the server refuses instead of executing it.
func (b *Backend) refuse(op Op, words string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.executed[op.Verb]++
	b.sayLocked("%s → refused: %s", op, words)
}

func (b *Backend) clockLocked() protocol.Instant { return time.Since(b.start) + b.skew }

// A lock's record outlives its last change by keep or, if the lock was free and no session waited, by brief. If twice the lease
// is longer, the record outlives the change by that.
const keep, brief = time.Hour, time.Minute

// batch is how many waiters of a condition one Signal wakes at most, as with scripts.
const batch = 100

// lockLocked returns the lock with a name, and creates it if necessary.
func (b *Backend) lockLocked(name string) *protocol.Lock {
	l := b.locks[name]
	if l == nil {
		l = &protocol.Lock{Name: name, Keep: keep, Brief: brief, Batch: batch, Publish: b.publishLocked}
		b.locks[name] = l
	}
	return l
}

// publishLocked puts a message in the inbox of every connection of a session.
func (b *Backend) publishLocked(to string, m protocol.Message) {
	for _, c := range b.conns {
		if c.session == to {
			c.putLocked(message{Message: m, link: c.link})
		}
	}
	if b.trace != nil {
		b.grants = append(b.grants, describe(b.names[to], m))
	}
}

// describe formats a message for a trace.
func describe(to string, m protocol.Message) string {
	about := fmt.Sprintf("%s %s e%d", to, shown(m.Name), m.Epoch)
	switch m.Kind {
	case protocol.SharedGrant:
		return fmt.Sprintf("grant %s %s%s%s", about, units(m.Units), underBlock(m.Units, m.First, m.Last), allowed(m.May))
	case protocol.SharedWanted:
		return fmt.Sprintf("wanted %s %s, may keep %s%s", to, shown(m.Name), units(m.May), tried(m.Try))
	case protocol.Taken:
		return "taken " + about
	case protocol.Wanted:
		return "wanted " + about
	case protocol.Signalled:
		return "signal " + about + either(m.Placed, " placed", "")
	}
	return "grant " + about + " " + block(m.First, m.Last)
}

// note adds a line to the trace about something that happened on the way to the server.
func (b *Backend) note(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sayLocked(format, args...)
}

func (b *Backend) sayLocked(format string, args ...any) {
	if b.trace != nil {
		b.trace(fmt.Sprintf(format, args...))
	}
}

// dropLocked removes a Conn from the list.
func (b *Backend) dropLocked(c *Conn) {
	b.conns = slices.DeleteFunc(b.conns, func(x *Conn) bool { return x == c })
}
