package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend/redistest"
)

// simTraced are the names of a simulation of which traces are written: locks on the usual terms, without conditions.
var simTraced = []string{simNorth, simSouth, simRight}

// A scribe writes traces of a simulation, one for each lock, which spec/trace/WorldTrace.tla explains: what sessions send and
// hear, what the server has after each command that it executes, and for how long owners have the lock. The client of a process
// puts the numbers of messages into its commands, and the scribe, who sits between the cables and the server, takes them out.
// It has one command executed at a time, at a whole millisecond.
type scribe struct {
	server *redistest.Server
	turn   chan struct{} // of the command that is executed

	mu       sync.Mutex
	start    time.Time
	sessions map[string]string // short names, by the ids
	messages []*message        // by their numbers
	pages    map[string]*page  // by the names of locks
	fault    error
}

// A message is a request that a session has sent.
type message struct {
	line
	lock string
	req  backend.ReenterRequest // of a re-entry
	done bool                   // it has been executed; guarded by scribe.mu, as is the line's keep
}

// A page is a trace of a lock.
type page struct {
	lines  []line
	inside map[string]*inside // by session
}

// An inside is an owner that has the lock.
type inside struct {
	part  *part
	token uint64
	lost  <-chan struct{}
	over  chan struct{} // closed when it no longer has it
}

// A line is an event of a trace.
type line struct {
	at     int64  // ms since the beginning
	what   string // send, execute, late, hear, got, left
	s      string
	kind   string // of the message: as in spec/Relock.tla
	epoch  uint64
	age    int64 // of the message, ms
	until  int64 // attempt: its notAfter; release: for how long a copy of an attempt may be under way
	token  backend.Token
	keep   bool // the lease stays as it is
	sent   int64
	state  state // after the command
	number int   // of the message, 0 for none
}

// A state is what the server has of a lock.
type state struct {
	owner  string // a session's short name
	epoch  uint64
	left   int64 // of the lease, ms
	holds  int
	op     uint64 // the last re-entry
	token  backend.Token
	places []spot
}

// A spot is a place in the queue.
type spot struct {
	s     string
	epoch uint64
}

func newScribe(server *redistest.Server) *scribe {
	s := &scribe{server: server, turn: make(chan struct{}, 1), start: time.Now(), sessions: make(map[string]string), pages: make(map[string]*page)}
	for _, name := range simTraced {
		s.pages[name] = &page{inside: make(map[string]*inside)}
	}
	return s
}

func (s *scribe) millis() int64 { return time.Since(s.start).Milliseconds() }

func (s *scribe) note(lock string, l line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteLocked(lock, l)
}

func (s *scribe) noteLocked(lock string, l line) {
	if p := s.pages[lock]; len(p.lines) < *traceLen {
		l.at = s.millis()
		p.lines = append(p.lines, l)
	}
}

// sends notes a request, and returns a context by which the client knows its number.
func (s *scribe) sends(ctx context.Context, m message) (context.Context, *message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.what, m.sent, m.number = "send", s.millis(), len(s.messages)+1
	if m.kind != "release" && m.kind != "renew" {
		s.leavesIfLost(m.lock, m.s)
	}
	s.noteLocked(m.lock, m.line)
	s.messages = append(s.messages, &m)
	numbers, _ := ctx.Value(numbersKey{}).([]int)
	return context.WithValue(ctx, numbersKey{}, append(slices.Clip(numbers), m.number)), &m
}

type numbersKey struct{}

// hears notes a reply to a request.
func (s *scribe) hears(m *message, kind string, token backend.Token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := m.line
	l.what, l.kind, l.token, l.age = "hear", kind, token, s.millis()-m.sent
	s.noteLocked(m.lock, l)
}

// got notes that an owner has the lock, and when that is lost.
func (s *scribe) got(h *hand, p *part) {
	page := s.pages[p.name]
	if page == nil {
		return
	}
	token, held := p.held()
	s.mu.Lock()
	defer s.mu.Unlock()
	name := s.sessions[h.session.ID()]
	if !held || page.inside[name] != nil && page.inside[name].token == token { // a re-entry
		return
	}
	s.leavesIfLost(p.name, name)
	if page.inside[name] != nil {
		s.fault = errors.Join(s.fault, fmt.Errorf("%s has %s twice", name, p.name))
		return
	}
	in := &inside{p, token, p.lost, make(chan struct{})}
	page.inside[name] = in
	s.noteLocked(p.name, line{what: "got", s: name, token: backend.Token(token)})
	go func() {
		select {
		case <-in.over:
		case <-in.lost:
			s.mu.Lock()
			defer s.mu.Unlock()
			if page.inside[name] == in {
				s.leavesIfLost(p.name, name)
			}
		}
	}()
}

// left notes that an owner is about to give up the lock.
func (s *scribe) left(h *hand, p *part) {
	if p.count != nil && p.count() > 1 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if page := s.pages[p.name]; page != nil {
		if name := s.sessions[h.session.ID()]; page.inside[name] != nil && page.inside[name].part == p {
			s.leaves(p.name, name)
		}
	}
}

// leavesIfLost notes that an owner has lost the lock, if it has. s.mu is held.
func (s *scribe) leavesIfLost(lock, name string) {
	if in := s.pages[lock].inside[name]; in != nil {
		select {
		case <-in.lost:
			s.leaves(lock, name)
		default:
		}
	}
}

func (s *scribe) leaves(lock, name string) {
	close(s.pages[lock].inside[name].over)
	delete(s.pages[lock].inside, name)
	s.noteLocked(lock, line{what: "left", s: name})
}

// execute has a command executed, by forward, and notes what the server then has of the locks that it is about. The reply is what
// the connection has heard.
func (s *scribe) execute(words []string, numbers []int, forward func() []byte) {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	past := time.Since(s.start) % time.Millisecond
	time.Sleep((time.Millisecond - past) % time.Millisecond)
	var all []*message
	s.mu.Lock()
	for _, n := range numbers {
		if m := s.messages[n-1]; slices.Contains(words, m.lock) {
			all = append(all, m)
		}
	}
	s.mu.Unlock()
	var before state
	if len(all) == 1 && all[0].req.Op > 0 {
		before = s.read(all[0].lock)
	}
	reply := forward()
	switch {
	case bytes.HasPrefix(reply, []byte("-NOSCRIPT")) || string(reply) == ":0\r\n":
		return // it was not executed, or does nothing: the client sends another
	case bytes.HasPrefix(reply, []byte("-")):
		s.blame(fmt.Errorf("%s: %s", words[0], reply))
		return
	}
	for _, m := range all {
		s.mu.Lock()
		l := m.line
		s.mu.Unlock()
		l.what, l.age, l.state = "execute", s.millis()-m.sent, s.read(m.lock)
		if l.kind != "release" && bytes.HasPrefix(reply, []byte("*5\r\n:4\r\n")) {
			l.what = "late"
		}
		if m.req.Op > 0 {
			l.keep = m.req.Op <= before.op || m.req.Holds <= before.holds || m.req.Lease == 0
		}
		s.mu.Lock()
		if !m.done { // a copy says nothing of what the reply is worth
			m.done, m.keep = true, l.keep
		}
		s.noteLocked(m.lock, l)
		s.mu.Unlock()
	}
}

func (s *scribe) blame(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = errors.Join(s.fault, err)
}

// read returns what the server has of a lock.
func (s *scribe) read(name string) (st state) {
	c, side := s.server.Client(), "relock:{"+name+"}:"
	replies := c.DoMulti(context.Background(), c.B().Hgetall().Key(name).Build(), c.B().Pttl().Key(name).Build(), c.B().Get().Key(side+"t:"+name).Build(),
		c.B().Lrange().Key(side+"q:"+name).Start(0).Stop(-1).Build(), c.B().Hgetall().Key(side+"w:"+name).Build())
	holds, err := replies[0].AsStrMap()
	left, err1 := replies[1].AsInt64()
	record, err2 := replies[2].ToString()
	if rueidis.IsRedisNil(err2) {
		err2 = nil
	}
	queue, err3 := replies[3].AsStrSlice()
	waiters, err4 := replies[4].AsStrMap()
	s.blame(errors.Join(err, err1, err2, err3, err4))
	s.mu.Lock()
	defer s.mu.Unlock()
	var last, session, epoch, op string
	_, _ = fmt.Sscan(record, new(string), &last, &session, &epoch, &op)
	st.token = backend.Token(number(last))
	for field, holds := range holds {
		id, _, _ := strings.Cut(field, ":")
		st.owner, st.left, st.holds = s.sessions[id], left, int(number(holds))
		if id == session {
			st.epoch, st.op = number(epoch), number(op)
		}
	}
	for _, id := range queue {
		var epoch, deadline uint64
		_, _ = fmt.Sscan(waiters[id], &epoch, &deadline)
		if deadline >= uint64(time.Now().UnixMicro()) { //nolint:gosec // after 1970
			st.places = append(st.places, spot{s.sessions[id], epoch})
		}
	}
	return st
}

func number(text string) uint64 {
	n, _ := strconv.ParseUint(text, 10, 64)
	return n
}

// write writes the traces into a folder.
func (s *scribe) write(t *testing.T, folder string, seed uint64) {
	assert.NoError(t, s.fault)
	for name, page := range s.pages {
		require.NoError(t, os.WriteFile(filepath.Join(folder, fmt.Sprintf("%d-%s.trace", seed, name)), []byte(page.text()), 0o600))
	}
}

// text returns the lines as a tuple of TLA+. Tokens are numbered in their order. Of each message it says what becomes of it: TLC
// need not keep those that nobody gets.
func (p *page) text() string {
	tokens := []backend.Token{0}
	for _, l := range p.lines {
		tokens = append(tokens, l.token, l.state.token)
	}
	slices.Sort(tokens)
	tokens = slices.Compact(tokens)
	rank := func(token backend.Token) int {
		i, _ := slices.BinarySearch(tokens, token)
		return i
	}
	lines := make([]string, len(p.lines))
	executed, heard, pushed := make(map[string]bool), make(map[int]bool), make(map[string]bool) // later
	for i := len(lines) - 1; i >= 0; i-- {
		l := p.lines[i]
		copies, push := fmt.Sprint(l.s, l.kind, l.epoch, " ", l.sent), fmt.Sprint(l.s, " ", l.epoch)
		again, told := executed[copies], false
		switch l.what {
		case "execute":
			executed[copies] = true
			push = fmt.Sprint(l.state.owner, " ", l.state.epoch)
			told = pushed[push]
		case "hear":
			again = l.kind == "push" && pushed[push]
			heard[l.number], pushed[push] = true, pushed[push] || l.kind == "push"
		}
		var places []string
		for _, place := range l.state.places {
			places = append(places, fmt.Sprintf("[s |-> %q, e |-> %d]", place.s, place.epoch))
		}
		lines[i] = fmt.Sprintf("[at |-> %d, what |-> %q, s |-> %q, kind |-> %q, e |-> %d, age |-> %d, until |-> %d, token |-> %d, "+
			"keep |-> %s, again |-> %s, heard |-> %s, pushed |-> %s, owner |-> %q, oe |-> %d, left |-> %d, top |-> %d, places |-> <<%s>>]",
			l.at, l.what, l.s, l.kind, l.epoch, l.age, l.until, rank(l.token), truth(l.keep), truth(again), truth(heard[l.number]), truth(told),
			l.state.owner, l.state.epoch, l.state.left, rank(l.state.token), strings.Join(places, ", "))
	}
	return "<<\n" + strings.Join(lines, ",\n") + ">>\n"
}

// A scribedBackend is between a session and its backend, and tells the scribe what passes.
type scribedBackend struct {
	backend.Backend
	scribe *scribe
}

func (b scribedBackend) Connect(ctx context.Context, session string, sink backend.Sink) (backend.Conn, error) {
	b.scribe.mu.Lock()
	name := fmt.Sprintf("s%d", len(b.scribe.sessions)+1)
	b.scribe.sessions[session] = name
	b.scribe.mu.Unlock()
	conn, err := b.Backend.Connect(ctx, session, scribedSink{sink, sink.(backend.SharedSink), b.scribe, name})
	if err != nil {
		return nil, err
	}
	return scribedConn{conn, conn.(backend.Adviser), conn.(backend.Registry), b.scribe, name}, nil
}

type scribedSink struct {
	backend.Sink
	backend.SharedSink
	scribe  *scribe
	session string
}

func (s scribedSink) Granted(g backend.Grant) {
	if s.scribe.pages[g.Name] != nil {
		s.scribe.note(g.Name, line{what: "hear", s: s.session, kind: "push", epoch: g.Epoch, token: g.First})
	}
	s.Sink.Granted(g)
}

type scribedConn struct {
	backend.Conn
	backend.Adviser
	backend.Registry
	scribe  *scribe
	session string
}

func (c scribedConn) Bind(name string) (backend.Remote, error) {
	remote, err := c.Conn.Bind(name)
	if err != nil || c.scribe.pages[name] == nil {
		return remote, err
	}
	return scribedRemote{remote, remote.(backend.Conditions), remote.(backend.Noter), remote.(backend.Resumer), remote.(backend.Watcher), c}, nil
}

func (c scribedConn) Renew(ctx context.Context, renewals []backend.Renewal) {
	own := slices.Clone(renewals) // with the backend's remotes
	messages := make([]*message, len(own))
	for i := range own {
		if r, ok := own[i].Remote.(scribedRemote); ok {
			own[i].Remote = r.Remote
			ctx, messages[i] = c.scribe.sends(ctx, message{lock: r.Name(), line: line{s: c.session, kind: "renew", epoch: own[i].Epoch}})
		}
	}
	c.Conn.Renew(ctx, own)
	for i, r := range own {
		renewals[i].Gone, renewals[i].First, renewals[i].Units, renewals[i].Err = r.Gone, r.First, r.Units, r.Err
		if messages[i] != nil && r.Err == nil {
			c.scribe.confirms(messages[i], r.Gone, r.First)
		}
	}
}

// confirms notes the reply to a renewal or a re-entry.
func (s *scribe) confirms(m *message, gone bool, first backend.Token) {
	if gone {
		s.hears(m, "gone", 0)
		return
	}
	s.hears(m, "renewed", first)
}

type scribedRemote struct {
	backend.Remote
	backend.Conditions
	backend.Noter
	backend.Resumer
	backend.Watcher
	conn scribedConn
}

func (r scribedRemote) sends(ctx context.Context, m message) (context.Context, *message) {
	m.s, m.lock = r.conn.session, r.Name()
	return r.conn.scribe.sends(ctx, m)
}

func (r scribedRemote) Acquire(ctx context.Context, req backend.AcquireRequest) (backend.AcquireReply, error) {
	kind, ok := kindOf[wish{req.Queue, req.Barge, req.Yield}]
	if !ok {
		r.conn.scribe.blame(fmt.Errorf("an attempt of no kind: %+v", req))
	}
	ctx, m := r.sends(ctx, message{line: line{kind: kind, epoch: req.Epoch, token: req.Seen, keep: req.KeepTTL, until: time.Until(req.NotAfter).Milliseconds()}})
	reply, err := r.Remote.Acquire(ctx, req)
	if err == nil {
		r.conn.scribe.hears(m, [...]string{"", "granted", "waiting", "stale"}[reply.Status], reply.First)
	}
	return reply, err
}

// A wish is what an attempt does if the lock is taken, free for others, or its session's.
type wish struct{ queues, barges, yields bool }

var kindOf = map[wish]string{
	{true, false, false}:  "attempt",
	{true, false, true}:   "yield",
	{false, true, false}:  "try",
	{false, false, false}: "poll",
	{false, false, true}:  "cede",
}

func (r scribedRemote) Release(ctx context.Context, req backend.ReleaseRequest) (backend.ReleaseResult, error) {
	l := line{kind: "release", epoch: req.Epoch}
	if !req.Until.IsZero() {
		l.until = max(0, time.Until(req.Until).Milliseconds())
	}
	ctx, m := r.sends(ctx, message{line: l})
	result, err := r.Remote.Release(ctx, req)
	if err == nil {
		r.conn.scribe.hears(m, "freed", 0)
	}
	return result, err
}

// Reenter is a renewal that may leave the lease as it is.
func (r scribedRemote) Reenter(ctx context.Context, req backend.ReenterRequest) (backend.ReenterReply, error) {
	ctx, m := r.sends(ctx, message{line: line{kind: "renew", epoch: req.Epoch}, req: req})
	reply, err := r.Remote.Reenter(ctx, req)
	if err == nil {
		r.conn.scribe.confirms(m, reply.Gone, reply.First)
	}
	return reply, err
}

// A scribedClient puts the numbers of messages into commands that run scripts.
type scribedClient struct{ rueidis.Client }

const numbered = "numbers"

func (c scribedClient) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	return c.Client.Do(ctx, c.number(ctx, cmd))
}

func (c scribedClient) DoMulti(ctx context.Context, all ...rueidis.Completed) []rueidis.RedisResult {
	all = slices.Clone(all)
	for i, cmd := range all {
		all[i] = c.number(ctx, cmd)
	}
	return c.Client.DoMulti(ctx, all...)
}

func (c scribedClient) number(ctx context.Context, cmd rueidis.Completed) rueidis.Completed {
	numbers, _ := ctx.Value(numbersKey{}).([]int)
	words := cmd.Commands()
	if len(numbers) == 0 || !strings.HasPrefix(words[0], "EVAL") {
		return cmd
	}
	return c.B().Arbitrary(words...).Args(fmt.Sprint(numbered, numbers)).Build()
}

// A scribedWire is a connection to the server. It takes the numbers of messages out of the commands.
type scribedWire struct {
	net.Conn
	scribe *scribe
	unsent []byte // the beginning of a command

	other bool // a command was sent that is not traced, and its reply may not be here

	mu    sync.Mutex
	heard []byte // since the last command was sent
}

func (w *scribedWire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard = append(w.heard, p[:n]...)
	return n, err
}

func (w *scribedWire) Write(p []byte) (int, error) {
	w.unsent = append(w.unsent, p...)
	for {
		words, length := command(w.unsent)
		if length == 0 {
			return len(p), nil
		}
		one := w.unsent[:length]
		w.unsent = w.unsent[length:]
		last := words[len(words)-1]
		if !strings.HasPrefix(last, numbered) {
			if _, err := w.Conn.Write(one); err != nil {
				return 0, err
			}
			w.other = true
			continue
		}
		w.executes(words[:len(words)-1], last)
	}
}

func (w *scribedWire) executes(words []string, last string) {
	var numbers []int
	for _, n := range strings.Fields(strings.Trim(strings.TrimPrefix(last, numbered), "[]")) {
		numbers = append(numbers, int(number(n)))
	}
	w.scribe.execute(words, numbers, func() []byte {
		if w.other {
			synctest.Wait()
			w.other = false
		}
		w.mu.Lock()
		w.heard = nil
		w.mu.Unlock()
		var text strings.Builder
		fmt.Fprintf(&text, "*%d\r\n", len(words))
		for _, word := range words {
			fmt.Fprintf(&text, "$%d\r\n%s\r\n", len(word), word)
		}
		_, _ = w.Conn.Write([]byte(text.String())) // a connection that is closed is read no more, either
		synctest.Wait()                            // until the reply is here
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.heard
	})
}

// command returns the first command in a text, and its length; 0 if it is not complete.
func command(text []byte) (words []string, length int) {
	rest := text
	next := func() (int, bool) {
		head, tail, ok := bytes.Cut(rest, []byte("\r\n"))
		if !ok {
			return 0, false
		}
		rest = tail
		return int(number(string(head[1:]))), true
	}
	n, ok := next()
	if !ok {
		return nil, 0
	}
	for range n {
		size, ok := next()
		if !ok || len(rest) < size+2 {
			return nil, 0
		}
		words, rest = append(words, string(rest[:size])), rest[size+2:]
	}
	return words, len(text) - len(rest)
}
