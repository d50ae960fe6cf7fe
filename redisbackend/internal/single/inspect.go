package single

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/protocol"
	"github.com/relock-go/relock/redisbackend/internal/clock"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// Inspect implements backend.Remote. It returns the owner as the holder wrote it.
func (r *Remote) Inspect(ctx context.Context) (backend.State, error) {
	list, at, err := r.exec(ctx, &r.Conn.Deployment.scripts.Inspect, r.Keys.WithNote(r.Conn.Deployment.Prefix), nil)
	if err != nil {
		return backend.State{}, r.NameOtherData(ctx, err)
	}
	return r.state(list, at)
}

// NameOtherData returns err. If err is ErrWrongKind, NameOtherData asks the server for the types of the keys. If the types
// show which key has other data, the returned error also names the key and the data. Without the right to TYPE it returns err.
func (r *Remote) NameOtherData(ctx context.Context, err error) error {
	if !errors.Is(err, backend.ErrWrongKind) {
		return err
	}
	client := r.Conn.Deployment.Client
	commands := make(rueidis.Commands, len(r.Keys))
	for i, key := range r.Keys {
		commands[i] = client.B().Type().Key(key).Build()
	}
	var types [len(r.Keys)]string
	for i, answer := range client.DoMulti(ctx, commands...) {
		var failed error
		if types[i], failed = answer.ToString(); failed != nil {
			return err
		}
	}
	if i, data := wire.OtherData(types); data != "" {
		return &backend.OtherDataError{Key: r.Keys[i], Data: data, Err: err}
	}
	return err
}

// state reads the reply of inspect.lua.
func (r *Remote) state(list []rueidis.RedisMessage, at clock.Sample) (backend.State, error) {
	l := reader{list: list}
	at.Stamp = l.number()
	field, holds, ttl := l.word(), l.number(), l.number()
	first, last := l.number(), l.number()
	session, epoch, _, note := l.word(), l.number(), l.word(), l.word()
	state := backend.State{Token: backend.Token(last)}
	if field != "" {
		state.Locked, state.Holds, state.TTL = true, int(holds), time.Duration(ttl)*time.Millisecond
		by, of, _ := strings.Cut(field, ":")
		state.Session, state.Owner, state.Unlocked = protocol.HolderOf(by, of)
		if session == state.Session {
			state.Epoch, state.First, state.Note = uint64(epoch), backend.Token(first), note
			state.Since = protocol.Given(backend.Token(first), protocol.Instant(at.Stamp)*time.Microsecond)
		}
	}
	for l.err == nil && len(l.list) > 0 {
		state.Waiting = append(state.Waiting, l.word())
	}
	if l.err != nil {
		return backend.State{}, wire.Unexpected(l.err)
	}
	r.Clock.Saw(at)
	return state, nil
}

// InspectAll implements backend.Inspector.
func (c *Conn) InspectAll(ctx context.Context, inspections []backend.Inspection) {
	c.Deployment.Verbs.InspectAll(ctx, c, inspections)
}

// InspectAll sends a command for each lock, all in one pipeline. Each can fail by itself.
func (scripted) InspectAll(ctx context.Context, c *Conn, inspections []backend.Inspection) {
	sent := time.Now()
	if err := wire.ContextErr(ctx, sent); err != nil {
		for i := range inspections {
			inspections[i].Err = fmt.Errorf("redisbackend: not sent: %w", err)
		}
		return
	}
	var asked []*backend.Inspection
	var remotes []*Remote
	var calls []wire.Call
	for i := range inspections {
		n := &inspections[i]
		own, ok := n.Remote.(*Remote)
		if !ok || own.Conn != c {
			n.Err = wire.Invalid("the lock is not one of this session")
			continue
		}
		asked, remotes = append(asked, n), append(remotes, own)
		calls = append(calls, wire.Call{Script: &c.Deployment.scripts.Inspect, Keys: own.Keys.WithNote(c.Deployment.Prefix)})
	}
	results := wire.Pipeline(ctx, c.Deployment.Client, calls)
	at := clock.SampleSince(sent)
	for i, n := range asked {
		list, err := results[i].ToArray()
		if err != nil {
			n.Err = remotes[i].failed(ctx, results[i], err)
			continue
		}
		n.State, n.Err = remotes[i].state(list, at)
	}
}
