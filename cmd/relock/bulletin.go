//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/relock-go/relock/reentrant"
)

// A bulletin says what a hold waits for: who has the lock, or that Redis does not answer. People at a terminal read it
// soon and get sentences; a log gets records, and not every change of the holder.
type bulletin struct {
	hold     *hold
	terminal bool
	every    time.Duration // how often Redis is asked
	clock    *redisClock
	began    time.Time

	last   string // what was said last, without the durations
	lastAt time.Time
}

const (
	notice      = 200 * time.Millisecond // a lock that comes sooner was not waited for
	repetition  = time.Minute            // what has not changed is said again after so long
	terminalAsk = time.Second
	logAsk      = 10 * time.Second
)

func newBulletin(h *hold) *bulletin {
	b := &bulletin{hold: h, terminal: isTerminal(h.stderr), every: logAsk, clock: &redisClock{server: h.server}, began: time.Now()}
	if b.terminal {
		b.every = terminalAsk
	}
	return b
}

// follow says what there is to say until ctx ends.
func (b *bulletin) follow(ctx context.Context) {
	for pause := notice; ; pause = b.every {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		st, err := b.hold.lock.look(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			b.say("", func() { b.sayOutage(err) })
		case st.others(b.hold.session.ID()):
			age, known := b.age(ctx, st)
			b.say(st.Session+" "+holderOf(st)+" "+st.Note, func() { b.sayHolder(st, age, known) })
		}
	}
}

// say says something new, or what was said long ago.
func (b *bulletin) say(what string, how func()) {
	if !b.lastAt.IsZero() && what == b.last && time.Since(b.lastAt) < repetition {
		return
	}
	b.last, b.lastAt = what, time.Now()
	how()
}

// age is how long the holder has had the lock. It is known by the token, which readers and permits do not have.
func (b *bulletin) age(ctx context.Context, st status) (age time.Duration, known bool) {
	if st.shared != nil && !st.writing() {
		return 0, false
	}
	return b.clock.since(ctx, reentrant.Token(st.Token))
}

// sayHolder names the holder and what it noted, and how long it has held the lock as far as that is known.
func (b *bulletin) sayHolder(st status, age time.Duration, known bool) {
	name, holder := b.hold.lock.Name(), holderOf(st)
	switch {
	case b.terminal && known:
		fmt.Fprintf(b.hold.stderr, "relock: waiting for %s, held by %s for %s%s\n", shown(name), holder, inWords(age), st.noted())
	case b.terminal:
		fmt.Fprintf(b.hold.stderr, "relock: waiting for %s, held by %s%s\n", shown(name), holder, st.noted())
	default:
		attrs := []any{"holder", holder}
		if st.Note != "" {
			attrs = append(attrs, "note", st.Note)
		}
		if known {
			attrs = append(attrs, "held_for", age.Round(time.Millisecond))
		}
		b.log(slog.LevelInfo, attrs...)
	}
}

// sayOutage says that Redis does not answer.
func (b *bulletin) sayOutage(err error) {
	if b.terminal {
		fmt.Fprintf(b.hold.stderr, "relock: waiting for %s, but Redis does not answer: %s\n", shown(b.hold.lock.Name()), words(err))
		return
	}
	b.log(slog.LevelWarn, "error", words(err))
}

func (b *bulletin) log(level slog.Level, attrs ...any) {
	attrs = append([]any{"lock", b.hold.lock.Name(), "waited", time.Since(b.began).Round(time.Millisecond)}, attrs...)
	slog.New(slog.NewTextHandler(b.hold.stderr, nil)).Log(context.Background(), level, "waiting for a lock", attrs...)
}

// isTerminal reports whether people read what is written.
func isTerminal(w io.Writer) bool {
	file, ok := w.(interface{ Fd() uintptr })
	return ok && isTTY(int(file.Fd()))
}
