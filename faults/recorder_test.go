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

// simTraced are the locks of a simulation of which traces are written, apart from the ferry. They have no special options and
// no conditions.
var simTraced = []string{simNorth, simSouth, simRight}

// A recorder writes traces of a simulation, one for each lock, which spec/trace/WorldTrace.tla explains. A trace has what
// sessions send and hear, what the server has after each command that it executes, and for how long owners have the lock. The
// client of a process puts the numbers of messages into its commands, and the recorder, between the cables and the server,
// takes the numbers out. The recorder has one command executed at a time, at a whole millisecond.
type recorder struct {
	server *redistest.Server
	turn   chan struct{} // has a value while a command is executed

	mu       sync.Mutex
	start    time.Time
	sessions map[string]string     // short names, by the ids
	messages []*message            // by their numbers
	traces   map[string]*lockTrace // by the names of locks
	fault    error
}

// A message is a request that a session has sent.
type message struct {
	line
	lock  string
	lease time.Duration // of a re-entry
	done  bool          // the request has been executed; recorder.mu guards done, and the line's keep
}

// A lockTrace is the trace of one lock.
type lockTrace struct {
	lines   []line
	holders map[string]*holder // by session
}

// A holder is an owner that has the lock.
type holder struct {
	part  *part
	token uint64
	lost  <-chan struct{}
	over  chan struct{} // closed when the owner no longer has the lock
}

// A line is an event of a trace.
type line struct {
	at     int64  // ms since the beginning
	what   string // send, execute, late, hear, got, left, forget, copy, restore
	s      string
	kind   string // of the message: as in spec/Relock.tla
	epoch  uint64
	age    int64         // of the message, ms
	until  int64         // attempt, resume: its notAfter; release: for how long a copy of an attempt may be under way
	doubt  int64         // resume: the same
	whose  string        // attempt, resume: the owner
	token  backend.Token // release: the last one that an owner has used
	last   backend.Token // of the block that was heard of
	keep   bool          // the lease stays as it is
	lean   bool          // only pass.lua replies so: the script compares the record, and may run after the attempt's notAfter
	op     uint64        // of a re-entry; rises within the epoch
	holds  int           // how many holds an attempt or a re-entry is for
	prior  backend.Prior
	sent   int64
	state  state // after the command
	number int   // of the message, 0 for none
}

// A state is what the server has of a lock.
type state struct {
	owner  string // a session's short name
	user   string // its owner
	epoch  uint64
	left   int64 // of the lease, ms
	holds  int
	op     uint64        // the last re-entry
	first  backend.Token // of the latest block
	token  backend.Token // its last
	places []place
}

// A place is a session's place in the queue.
type place struct {
	s     string
	epoch uint64
}

func newRecorder(server *redistest.Server) *recorder {
	rec := &recorder{server: server, turn: make(chan struct{}, 1), start: time.Now(), sessions: make(map[string]string), traces: make(map[string]*lockTrace)}
	for _, name := range append(slices.Clip(simTraced), simFerry) {
		rec.traces[name] = &lockTrace{holders: make(map[string]*holder)}
	}
	return rec
}

func (rec *recorder) millis() int64 { return time.Since(rec.start).Milliseconds() }

func (rec *recorder) note(lock string, l line) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.noteLocked(lock, l)
}

func (rec *recorder) noteLocked(lock string, l line) {
	if p := rec.traces[lock]; len(p.lines) < *traceLen {
		l.at = rec.millis()
		p.lines = append(p.lines, l)
	}
}

// full reports whether all traces have as many lines as they may.
func (rec *recorder) full() bool {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	for _, trace := range rec.traces {
		if len(trace.lines) < *traceLen {
			return false
		}
	}
	return true
}

// sends notes a request. It returns a context that carries the request's number to the client.
func (rec *recorder) sends(ctx context.Context, m message) (context.Context, *message) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	m.what, m.sent, m.number = "send", rec.millis(), len(rec.messages)+1
	if m.kind != "renew" { // a release may be sent because the lock is lost, before its owner acts on that
		rec.leavesIfLost(m.lock, m.s)
	}
	rec.noteLocked(m.lock, m.line)
	rec.messages = append(rec.messages, &m)
	numbers, _ := ctx.Value(numbersKey{}).([]int)
	return context.WithValue(ctx, numbersKey{}, append(slices.Clip(numbers), m.number)), &m
}

type numbersKey struct{}

// hears notes a reply to a request. If the reply is a grant, token and last are the first and the last token of its block.
func (rec *recorder) hears(m *message, kind string, token, last backend.Token) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	l := m.line
	l.what, l.kind, l.token, l.last, l.age = "hear", kind, token, last, rec.millis()-m.sent
	rec.noteLocked(m.lock, l)
}

// got notes that an owner has the lock, and starts a goroutine that notes when the owner loses the lock.
func (rec *recorder) got(h *hand, p *part) {
	trace := rec.traces[p.name]
	if trace == nil {
		return
	}
	token, held := p.held()
	rec.mu.Lock()
	defer rec.mu.Unlock()
	name := rec.sessions[h.session.ID()]
	if !held || trace.holders[name] != nil && trace.holders[name].token == token { // a re-entry
		return
	}
	rec.leavesIfLost(p.name, name)
	if trace.holders[name] != nil {
		rec.fault = errors.Join(rec.fault, fmt.Errorf("%s has %s twice", name, p.name))
		return
	}
	in := &holder{p, token, p.lost, make(chan struct{})}
	trace.holders[name] = in
	rec.noteLocked(p.name, line{what: "got", s: name, token: backend.Token(token)})
	go func() {
		select {
		case <-in.over:
		case <-in.lost:
			rec.mu.Lock()
			defer rec.mu.Unlock()
			if trace.holders[name] == in {
				rec.leavesIfLost(p.name, name)
			}
		}
	}()
}

// left notes that an owner is about to give up the lock.
func (rec *recorder) left(h *hand, p *part) {
	if p.count != nil && p.count() > 1 {
		return
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if trace := rec.traces[p.name]; trace != nil {
		if name := rec.sessions[h.session.ID()]; trace.holders[name] != nil && trace.holders[name].part == p {
			rec.leaves(p.name, name)
		}
	}
}

// leavesIfLost notes that an owner has lost the lock, if that is so. rec.mu is held.
func (rec *recorder) leavesIfLost(lock, name string) {
	if in := rec.traces[lock].holders[name]; in != nil {
		select {
		case <-in.lost:
			rec.leaves(lock, name)
		default:
		}
	}
}

func (rec *recorder) leaves(lock, name string) {
	close(rec.traces[lock].holders[name].over)
	delete(rec.traces[lock].holders, name)
	rec.noteLocked(lock, line{what: "left", s: name})
}

// execute has a command executed by forward, and notes what the server then has of the locks that the command is about. forward
// returns the reply as it arrived on the connection.
func (rec *recorder) execute(words []string, numbers []int, forward func() ([]byte, error)) {
	rec.turn <- struct{}{}
	defer func() { <-rec.turn }()
	awaitMillisecond(rec.start)
	var all []*message
	rec.mu.Lock()
	for _, n := range numbers {
		if m := rec.messages[n-1]; slices.Contains(words, m.lock) {
			all = append(all, m)
		}
	}
	rec.mu.Unlock()
	var before state
	if len(all) == 1 && all[0].op > 0 {
		before = rec.read(all[0].lock)
	}
	reply, err := forward()
	switch {
	case err != nil, bytes.HasPrefix(reply, []byte("-NOSCRIPT")) || string(reply) == ":0\r\n":
		return // the command was not executed, or does nothing: the client sends another
	case bytes.HasPrefix(reply, []byte("-")):
		rec.blame(fmt.Errorf("%s: %s", words[0], reply))
		return
	}
	for _, m := range all {
		rec.mu.Lock()
		l := m.line
		rec.mu.Unlock()
		l.what, l.age, l.lean, l.state = "execute", rec.millis()-m.sent, string(reply) == ":1\r\n", rec.read(m.lock)
		if l.kind != "release" && bytes.HasPrefix(reply, []byte("*5\r\n:4\r\n")) {
			l.what = "late"
		}
		if m.op > 0 {
			l.keep = m.op <= before.op || m.holds <= before.holds || m.lease == 0
		}
		rec.mu.Lock()
		if !m.done { // the reply to a copy does not show what the session may rely on
			m.done, m.keep = true, l.keep
		}
		rec.noteLocked(m.lock, l)
		rec.mu.Unlock()
	}
}

// notes calls do while no command is executed, and adds a line with the given name to all traces.
func (rec *recorder) notes(what string, do func()) {
	rec.turn <- struct{}{}
	defer func() { <-rec.turn }()
	awaitMillisecond(rec.start)
	do()
	for lock := range rec.traces {
		rec.note(lock, line{what: what})
	}
	time.Sleep(time.Millisecond) // so that tokens which the clock gives from now on are higher than those before
}

// lingers reports whether a session has a lock while none of its owners uses the lock, as far as the lock's trace shows.
func (rec *recorder) lingers() bool {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	for _, name := range simTraced {
		trace := rec.traces[name]
		if n := len(trace.lines); n > 0 && trace.lines[n-1].what == "left" && trace.lines[n-1].at < rec.millis() {
			return true
		}
	}
	return false
}

func (rec *recorder) blame(err error) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.fault = errors.Join(rec.fault, err)
}

// read returns what the server has of a lock.
func (rec *recorder) read(name string) (st state) {
	c, side := rec.server.Client(), "relock:{"+name+"}:"
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
	rec.blame(errors.Join(err, err1, err2, err3, err4))
	rec.mu.Lock()
	defer rec.mu.Unlock()
	var first, last, session, epoch, op string
	_, _ = fmt.Sscan(record, &first, &last, &session, &epoch, &op)
	st.first, st.token = backend.Token(number(first)), backend.Token(number(last))
	for field, holds := range holds {
		id, user, _ := strings.Cut(field, ":")
		st.owner, st.user, st.left, st.holds = rec.sessions[id], user, left, int(number(holds))
		if id == session {
			st.epoch, st.op = number(epoch), number(op)
		}
	}
	for _, id := range queue {
		var epoch, deadline uint64
		_, _ = fmt.Sscan(waiters[id], &epoch, &deadline)
		if deadline >= uint64(time.Now().UnixMicro()) { //nolint:gosec // after 1970
			st.places = append(st.places, place{rec.sessions[id], epoch})
		}
	}
	return st
}

func number(text string) uint64 {
	n, _ := strconv.ParseUint(text, 10, 64)
	return n
}

// write writes the traces into a folder.
func (rec *recorder) write(t *testing.T, folder string, seed uint64) {
	assert.NoError(t, rec.fault)
	for name, trace := range rec.traces {
		require.NoError(t, os.WriteFile(filepath.Join(folder, fmt.Sprintf("%d-%s.trace", seed, name)), []byte(trace.text()), 0o600))
	}
}

// text returns the lines as a tuple of TLA+. Tokens are numbered in their order. For each message text states what becomes of
// it, so that TLC need not keep messages that reach no session.
func (tr *lockTrace) text() string {
	tokens := []backend.Token{0}
	for _, l := range tr.lines {
		tokens = append(tokens, l.token, l.last, l.state.first, l.state.token)
	}
	slices.Sort(tokens)
	tokens = slices.Compact(tokens)
	rank := func(token backend.Token) int {
		i, _ := slices.BinarySearch(tokens, token)
		return i
	}
	lines := make([]string, len(tr.lines))
	executed, heard, pushed, replied := make(map[string]bool), make(map[int]bool), make(map[string]bool), make(map[string]bool) // later
	for i := len(lines) - 1; i >= 0; i-- {
		l := tr.lines[i]
		copies, push := fmt.Sprint(l.s, l.kind, l.epoch, " ", l.sent), fmt.Sprint(l.s, " ", l.epoch)
		again, told := executed[copies], false
		switch l.what {
		case "execute":
			executed[copies] = true
			push = fmt.Sprint(l.state.owner, " ", l.state.epoch)
			told = pushed[push]
		case "hear":
			if reply := fmt.Sprint(copies, " ", l.token); l.kind == "push" {
				again, pushed[push] = pushed[push], true
			} else { // two requests of one millisecond have replies that look alike
				again, replied[reply] = replied[reply], true
			}
			heard[l.number] = true
		}
		var places []string
		for _, place := range l.state.places {
			places = append(places, fmt.Sprintf("[s |-> %q, e |-> %d]", place.s, place.epoch))
		}
		lines[i] = fmt.Sprintf("[at |-> %d, what |-> %q, s |-> %q, kind |-> %q, e |-> %d, age |-> %d, until |-> %d, doubt |-> %d, whose |-> %q, token |-> %d, last |-> %d, "+
			"keep |-> %s, lean |-> %s, again |-> %s, heard |-> %s, pushed |-> %s, op |-> %d, wants |-> %d, pe |-> %d, po |-> %d, owner |-> %q, user |-> %q, oe |-> %d, left |-> %d, holds |-> %d, "+
			"first |-> %d, top |-> %d, places |-> <<%s>>]",
			l.at, l.what, l.s, l.kind, l.epoch, l.age, l.until, l.doubt, l.whose, rank(l.token), rank(l.last), truth(l.keep), truth(l.lean), truth(again), truth(heard[l.number]), truth(told),
			l.op, l.holds, l.prior.Epoch, l.prior.Op, l.state.owner, l.state.user, l.state.epoch, l.state.left, l.state.holds, rank(l.state.first), rank(l.state.token), strings.Join(places, ", "))
	}
	return "<<\n" + strings.Join(lines, ",\n") + ">>\n"
}

// A recordedBackend is between a session and its backend, and reports to the recorder what passes.
type recordedBackend struct {
	backend.Backend
	recorder *recorder
}

func (b recordedBackend) Connect(ctx context.Context, session string, sink backend.Sink) (backend.Conn, error) {
	b.recorder.mu.Lock()
	name := fmt.Sprintf("s%d", len(b.recorder.sessions)+1)
	b.recorder.sessions[session] = name
	b.recorder.mu.Unlock()
	conn, err := b.Backend.Connect(ctx, session, recordedSink{sink, sink.(backend.SharedSink), b.recorder, name})
	if err != nil {
		return nil, err
	}
	return recordedConn{conn, conn.(backend.Adviser), conn.(backend.Registry), b.recorder, name}, nil
}

type recordedSink struct {
	backend.Sink
	backend.SharedSink
	recorder *recorder
	session  string
}

func (s recordedSink) Granted(g backend.Grant) {
	if s.recorder.traces[g.Name] != nil {
		s.recorder.note(g.Name, line{what: "hear", s: s.session, kind: "push", epoch: g.Epoch, token: g.First, last: g.Last})
	}
	s.Sink.Granted(g)
}

type recordedConn struct {
	backend.Conn
	backend.Adviser
	backend.Registry
	recorder *recorder
	session  string
}

func (c recordedConn) Bind(name string) (backend.Remote, error) {
	remote, err := c.Conn.Bind(name)
	if err != nil || c.recorder.traces[name] == nil {
		return remote, err
	}
	return recordedRemote{remote, remote.(backend.Conditions), remote.(backend.Noter), remote.(backend.Resumer), remote.(backend.Watcher), c}, nil
}

func (c recordedConn) Renew(ctx context.Context, renewals []backend.Renewal) {
	own := slices.Clone(renewals) // this copy gets the backend's remotes
	messages := make([]*message, len(own))
	for i := range own {
		if r, ok := own[i].Remote.(recordedRemote); ok {
			own[i].Remote = r.Remote
			ctx, messages[i] = c.recorder.sends(ctx, message{lock: r.Name(), line: line{s: c.session, kind: "renew", epoch: own[i].Epoch}})
		}
	}
	c.Conn.Renew(ctx, own)
	for i, r := range own {
		renewals[i].Gone, renewals[i].First, renewals[i].Units, renewals[i].Err = r.Gone, r.First, r.Units, r.Err
		if messages[i] != nil && r.Err == nil {
			c.recorder.confirms(messages[i], r.Gone, r.First)
		}
	}
}

// confirms notes the reply to a renewal or a re-entry.
func (rec *recorder) confirms(m *message, gone bool, first backend.Token) {
	if gone {
		rec.hears(m, "gone", 0, 0)
		return
	}
	rec.hears(m, "renewed", first, 0)
}

type recordedRemote struct {
	backend.Remote
	backend.Conditions
	backend.Noter
	backend.Resumer
	backend.Watcher
	conn recordedConn
}

func (r recordedRemote) sends(ctx context.Context, m message) (context.Context, *message) {
	m.s, m.lock = r.conn.session, r.Name()
	return r.conn.recorder.sends(ctx, m)
}

// Acquire at times drops what the session remembers of the lock. Then not pass.lua but the full script keeps the lease.
func (r recordedRemote) Acquire(ctx context.Context, req backend.AcquireRequest) (backend.AcquireReply, error) {
	if req.KeepTTL && req.Epoch%3 == 0 {
		req.Prior = backend.Prior{}
	}
	kind, ok := kindOf[wish{req.Queue, req.Barge, req.Yield}]
	if !ok {
		r.conn.recorder.blame(fmt.Errorf("an attempt of no kind: %+v", req))
	}
	ctx, m := r.sends(ctx, message{line: line{kind: kind, epoch: req.Epoch, whose: req.Owner, token: req.Seen, keep: req.KeepTTL, holds: req.Holds, prior: req.Prior, until: time.Until(req.NotAfter).Milliseconds()}})
	reply, err := r.Remote.Acquire(ctx, req)
	if err == nil {
		r.conn.recorder.hears(m, [...]string{"", "granted", "waiting", "stale"}[reply.Status], reply.First, reply.Last)
	} else if !backend.OutcomeUnknown(err) && !backend.Refused(err) { // the attempt came too late, or was not sent
		r.conn.recorder.hears(m, "late", 0, 0)
	}
	return reply, err
}

// A wish is what an attempt does in three cases: if the lock is taken, if it is free but another session waits, and if the
// attempt's session has it.
type wish struct{ queues, barges, yields bool }

var kindOf = map[wish]string{
	{true, false, false}:  "attempt",
	{true, false, true}:   "yield",
	{false, true, false}:  "try",
	{false, false, false}: "poll",
	{false, false, true}:  "cede",
}

func (r recordedRemote) Release(ctx context.Context, req backend.ReleaseRequest) (backend.ReleaseResult, error) {
	l := line{kind: "release", epoch: req.Epoch, token: req.Used}
	if !req.Until.IsZero() {
		l.until = max(0, time.Until(req.Until).Milliseconds())
	}
	ctx, m := r.sends(ctx, message{line: l})
	result, err := r.Remote.Release(ctx, req)
	if err == nil {
		r.conn.recorder.hears(m, "freed", 0, 0)
	}
	return result, err
}

func (r recordedRemote) Resume(ctx context.Context, req backend.ResumeRequest) (backend.ResumeReply, error) {
	l := line{kind: "resume", epoch: req.Epoch, whose: req.Owner, token: req.Seen, until: time.Until(req.NotAfter).Milliseconds()}
	if !req.Until.IsZero() {
		l.doubt = max(0, time.Until(req.Until).Milliseconds())
	}
	ctx, m := r.sends(ctx, message{line: l})
	reply, err := r.Resumer.Resume(ctx, req)
	if err == nil {
		r.conn.recorder.hears(m, [...]string{"", "resumed", "gone", "stale"}[reply.Status], reply.Token, reply.Token)
	} else if !backend.OutcomeUnknown(err) && !backend.Refused(err) {
		r.conn.recorder.hears(m, "late", 0, 0)
	}
	return reply, err
}

// Reenter is traced as a renewal that may leave the lease as it is.
func (r recordedRemote) Reenter(ctx context.Context, req backend.ReenterRequest) (backend.ReenterReply, error) {
	ctx, m := r.sends(ctx, message{line: line{kind: "renew", epoch: req.Epoch, op: req.Op, holds: req.Holds}, lease: req.Lease})
	reply, err := r.Remote.Reenter(ctx, req)
	if err == nil {
		r.conn.recorder.confirms(m, reply.Gone, reply.First)
	}
	return reply, err
}

// A recordedClient puts the numbers of messages into commands that run scripts.
type recordedClient struct{ rueidis.Client }

const numbered = "numbers"

func (c recordedClient) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	return c.Client.Do(ctx, c.number(ctx, cmd))
}

func (c recordedClient) DoMulti(ctx context.Context, all ...rueidis.Completed) []rueidis.RedisResult {
	all = slices.Clone(all)
	for i, cmd := range all {
		all[i] = c.number(ctx, cmd)
	}
	return c.Client.DoMulti(ctx, all...)
}

func (c recordedClient) number(ctx context.Context, cmd rueidis.Completed) rueidis.Completed {
	numbers, _ := ctx.Value(numbersKey{}).([]int)
	words := cmd.Commands()
	if len(numbers) == 0 || !strings.HasPrefix(words[0], "EVAL") {
		return cmd
	}
	return c.B().Arbitrary(words...).Args(fmt.Sprint(numbered, numbers)).Build()
}

// A recordedWire is a connection to the server. It takes the numbers of messages out of the commands that pass.
type recordedWire struct {
	net.Conn
	recorder *recorder
	unsent   []byte // the beginning of a command

	other bool // a command that is not traced was sent, and its reply may not have arrived

	mu    sync.Mutex
	heard []byte // since the last command was sent
}

func (w *recordedWire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard = append(w.heard, p[:n]...)
	return n, err
}

func (w *recordedWire) Write(p []byte) (int, error) {
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

func (w *recordedWire) executes(words []string, last string) {
	var numbers []int
	for _, n := range strings.Fields(strings.Trim(strings.TrimPrefix(last, numbered), "[]")) {
		numbers = append(numbers, int(number(n)))
	}
	w.recorder.execute(words, numbers, func() ([]byte, error) {
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
		if _, err := w.Conn.Write([]byte(text.String())); err != nil { // the connection is closed, so nothing more is read
			return nil, err
		}
		synctest.Wait() // until the reply is here
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.heard, nil
	})
}

// command returns the words of the first command in text, and the command's length. The length is 0 if the command is not
// complete.
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
