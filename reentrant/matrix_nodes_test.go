package reentrant_test

import (
	"context"
	"go/ast"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/memory"
)

// nodes is a Backend of two servers. The far one has the locks whose names begin with far/, and the records of
// sessions. It is the one that fails.
type nodes struct {
	near, far *memory.Backend
	garbage   atomic.Bool  // the far node's replies to the first session are nonsense
	sink      backend.Sink // of the first session
}

func (n *nodes) Connect(ctx context.Context, session string, sink backend.Sink) (backend.Conn, error) {
	near, err := n.near.Connect(ctx, session, sink)
	if err != nil {
		return nil, err
	}
	far, err := n.far.Connect(ctx, session, sink)
	if err != nil {
		_ = near.Close()
		return nil, err
	}
	c := &twoConns{n: n, near: near.(fullConn), far: far.(fullConn), first: n.sink == nil}
	if c.first {
		n.sink = sink
	}
	return c, nil
}

// A fullConn is a Conn with all optional interfaces, like a Conn of the memory backend.
type fullConn interface {
	backend.Conn
	backend.Inspector
	backend.Registry
}

// A fullRemote is a Remote with all optional interfaces, like a Remote of the memory backend.
type fullRemote interface {
	backend.Remote
	backend.Conditions
	backend.Noter
	backend.ShareNoter
	backend.Resumer
	backend.Sharer
	backend.Watcher
}

// The decorators forward every optional interface, because a session uses the interfaces that it finds.
var (
	_ fullConn   = (*twoConns)(nil)
	_ fullRemote = (*farRemote)(nil)
)

type twoConns struct {
	n         *nodes
	near, far fullConn
	first     bool // whether its session is the one under test
}

func isFar(name string) bool {
	return strings.HasPrefix(strings.TrimPrefix(name, backend.ConditionsPrefix), "far/")
}

// garbage reports whether the far node replies nonsense to this session.
func (c *twoConns) garbage() bool { return c.first && c.n.garbage.Load() }

func (c *twoConns) Bind(name string) (backend.Remote, error) {
	if !isFar(name) {
		return c.near.Bind(name)
	}
	remote, err := c.far.Bind(name)
	if err != nil {
		return nil, err
	}
	return &farRemote{remote.(fullRemote), c}, nil
}

// Renew asks both nodes at once.
func (c *twoConns) Renew(ctx context.Context, renewals []backend.Renewal) {
	onBoth(renewals, func(r *backend.Renewal) string { return r.Remote.Name() },
		func(part []backend.Renewal) { c.near.Renew(ctx, part) },
		func(part []backend.Renewal) { c.far.Renew(ctx, part) })
}

// InspectAll asks both nodes at once.
func (c *twoConns) InspectAll(ctx context.Context, inspections []backend.Inspection) {
	onBoth(inspections, func(x *backend.Inspection) string { return x.Remote.Name() },
		func(part []backend.Inspection) { c.near.InspectAll(ctx, part) },
		func(part []backend.Inspection) { c.inspectFar(ctx, part) })
}

func (c *twoConns) inspectFar(ctx context.Context, inspections []backend.Inspection) {
	for i := range inspections {
		if inspections[i].Remote = inspections[i].Remote.(*farRemote).fullRemote; c.garbage() {
			inspections[i].State = garbledState
		}
	}
	if !c.garbage() {
		c.far.InspectAll(ctx, inspections)
	}
}

// onBoth passes each node its part of a batch, at the same time, and merges the results in the original order.
func onBoth[T any](batch []T, name func(*T) string, near, far func([]T)) {
	var index [2][]int
	var parts [2][]T
	for i := range batch {
		node := 0
		if isFar(name(&batch[i])) {
			node = 1
		}
		index[node], parts[node] = append(index[node], i), append(parts[node], batch[i])
	}
	var asked sync.WaitGroup
	for node, ask := range []func([]T){near, far} {
		asked.Go(func() { ask(parts[node]) })
	}
	asked.Wait()
	for node, part := range parts {
		for j, x := range part {
			batch[index[node][j]] = x
		}
	}
}

func (c *twoConns) Register(ctx context.Context, text string, ttl time.Duration) error {
	return c.far.Register(ctx, text, ttl)
}

func (c *twoConns) Registered(ctx context.Context, session string) (string, error) {
	if c.garbage() {
		return "\xff\x00 1 2 3 \n\n far/x", nil
	}
	return c.far.Registered(ctx, session)
}

func (c *twoConns) Close() error {
	_ = c.near.Close()
	return c.far.Close()
}

// A farRemote is a lock on the far node. While that node's replies are garbage, a farRemote only makes them up.
type farRemote struct {
	fullRemote
	c *twoConns
}

// garbledState is not the state of any lock.
var garbledState = backend.State{Holds: -1, TTL: -time.Hour, Waiting: []string{"", ""}}

func (r *farRemote) garbage() bool { return r.c.garbage() }

func (r *farRemote) Acquire(ctx context.Context, req backend.AcquireRequest) (backend.AcquireReply, error) {
	if r.garbage() {
		return backend.AcquireReply{Status: 77, First: 9, Last: 3, TTL: -time.Hour}, nil
	}
	return r.fullRemote.Acquire(ctx, req)
}

func (r *farRemote) Reenter(ctx context.Context, req backend.ReenterRequest) (backend.ReenterReply, error) {
	if r.garbage() {
		return backend.ReenterReply{Holds: -5}, nil
	}
	return r.fullRemote.Reenter(ctx, req)
}

func (r *farRemote) Release(ctx context.Context, req backend.ReleaseRequest) (backend.ReleaseResult, error) {
	if r.garbage() {
		return -8, nil
	}
	return r.fullRemote.Release(ctx, req)
}

func (r *farRemote) Await(ctx context.Context, req backend.AwaitRequest) (backend.TicketStatus, error) {
	if r.garbage() {
		return 42, nil
	}
	return r.fullRemote.Await(ctx, req)
}

func (r *farRemote) Signal(ctx context.Context, req backend.SignalRequest) (backend.SignalReply, error) {
	if r.garbage() {
		return backend.SignalReply{Tickets: []uint64{0, req.Epoch, 1 << 63}}, nil
	}
	return r.fullRemote.Signal(ctx, req)
}

func (r *farRemote) Withdraw(ctx context.Context, condition string, ticket uint64) (backend.TicketStatus, error) {
	if r.garbage() {
		return -3, nil
	}
	return r.fullRemote.Withdraw(ctx, condition, ticket)
}

func (r *farRemote) Beat(ctx context.Context, condition string, tickets, served []uint64) ([]backend.TicketStatus, error) {
	if r.garbage() {
		return []backend.TicketStatus{7, 7, 7, 7, 7}, nil
	}
	return r.fullRemote.Beat(ctx, condition, tickets, served)
}

func (r *farRemote) Inspect(ctx context.Context) (backend.State, error) {
	if r.garbage() {
		return garbledState, nil
	}
	return r.fullRemote.Inspect(ctx)
}

func (r *farRemote) Resume(ctx context.Context, req backend.ResumeRequest) (backend.ResumeReply, error) {
	if r.garbage() {
		return backend.ResumeReply{Status: 1, Holds: -7, TTL: 1 << 62}, nil
	}
	return r.fullRemote.Resume(ctx, req)
}

func (r *farRemote) Share(ctx context.Context, req backend.ShareRequest) (backend.ShareReply, error) {
	if r.garbage() {
		return backend.ShareReply{Status: backend.Shared, Units: -7, First: 9, Last: 3}, nil
	}
	return r.fullRemote.Share(ctx, req)
}

func (r *farRemote) InspectShared(ctx context.Context) (backend.SharedState, error) {
	if r.garbage() {
		return backend.SharedState{Holders: []backend.SharedHolder{{Units: -1}}}, nil
	}
	return r.fullRemote.InspectShared(ctx)
}

func (r *farRemote) Watch(ctx context.Context, epoch uint64) (backend.WatchReply, error) {
	if r.garbage() {
		return backend.WatchReply{Gone: true, Waiting: true}, nil
	}
	return r.fullRemote.Watch(ctx, epoch)
}

func (r *farRemote) Note(ctx context.Context, req backend.NoteRequest) (bool, error) {
	if r.garbage() {
		return req.Epoch%2 == 0, nil
	}
	return r.fullRemote.Note(ctx, req)
}

func (r *farRemote) NoteShared(ctx context.Context, req backend.NoteRequest) (bool, error) {
	if r.garbage() {
		return req.Epoch%2 == 0, nil
	}
	return r.fullRemote.NoteShared(ctx, req)
}

// The optional interfaces of package backend, by name.
var (
	optionalOfConn = map[string]reflect.Type{
		"Inspector": reflect.TypeFor[backend.Inspector](), "Registry": reflect.TypeFor[backend.Registry](),
	}
	optionalOfRemote = map[string]reflect.Type{
		"Conditions": reflect.TypeFor[backend.Conditions](), "Noter": reflect.TypeFor[backend.Noter](), "ShareNoter": reflect.TypeFor[backend.ShareNoter](),
		"Resumer": reflect.TypeFor[backend.Resumer](), "Sharer": reflect.TypeFor[backend.Sharer](), "Watcher": reflect.TypeFor[backend.Watcher](),
	}
)

// The decorators must forward every optional interface: a failure does not affect an interface that they do not forward.
func TestMatrixReachesEveryOptionalInterface(t *testing.T) {
	// The sink of a session is not decorated, and no call waits for an Adviser.
	others := []string{"Backend", "Conn", "Remote", "Sink", "SharedSink", "Adviser"}
	for _, name := range interfacesIn(t, "../backend") {
		_, ofConn := optionalOfConn[name]
		_, ofRemote := optionalOfRemote[name]
		assert.True(t, ofConn || ofRemote || slices.Contains(others, name), "the matrix does not know the interface %s", name)
	}
	assertImplements(t, reflect.TypeFor[fullConn](), optionalOfConn)
	assertImplements(t, reflect.TypeFor[fullRemote](), optionalOfRemote)
}

func assertImplements(t *testing.T, typ reflect.Type, interfaces map[string]reflect.Type) {
	for name, optional := range interfaces {
		assert.True(t, typ.Implements(optional), "%v has no %s", typ, name)
	}
}

// interfacesIn returns the names of a package's exported interfaces.
func interfacesIn(t *testing.T, folder string) (names []string) {
	for _, file := range sourceFiles(t, folder) {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if _, ok := spec.Type.(*ast.InterfaceType); ok && spec.Name.IsExported() {
				names = append(names, spec.Name.Name)
			}
			return false
		})
	}
	return names
}
