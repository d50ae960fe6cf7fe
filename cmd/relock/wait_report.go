//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"
)

// A waitReporter prints what a hold waits for: the lock's holder, or that Redis does not answer. On a terminal it
// prints sentences, soon and often. Elsewhere it writes log records, less often, so a record may miss a change of the
// holder.
type waitReporter struct {
	hold     *hold
	terminal bool
	every    time.Duration // interval between two looks at Redis
	began    time.Time

	last   *status // the state that was reported last; nil if the last report was that Redis does not answer
	lastAt time.Time
}

const (
	notice      = 200 * time.Millisecond // shorter waits are not reported
	repetition  = time.Minute            // an unchanged state is reported again after this time
	terminalAsk = time.Second
	logAsk      = 10 * time.Second
)

func newWaitReporter(h *hold) *waitReporter {
	b := &waitReporter{hold: h, terminal: isTerminal(h.stderr), every: logAsk, began: time.Now()}
	if b.terminal {
		b.every = terminalAsk
	}
	return b
}

// follow reports until ctx ends.
func (r *waitReporter) follow(ctx context.Context) {
	for pause := notice; ; pause = r.every {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		st, err := r.hold.lock.look(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			r.say(nil, func() { r.sayOutage(err) })
		case st.others(r.hold.session.ID()):
			r.say(&st, func() { r.sayHolder(st) })
		}
	}
}

// say calls how, which reports the state what, if what differs from the last report, or if that report was long ago.
func (r *waitReporter) say(what *status, how func()) {
	if !r.lastAt.IsZero() && what.sameHolder(r.last) && time.Since(r.lastAt) < repetition {
		return
	}
	r.last, r.lastAt = what, time.Now()
	how()
}

// sayHolder reports the holder, its note and, if known, how long it has held the lock.
func (r *waitReporter) sayHolder(st status) {
	if r.terminal {
		fmt.Fprintf(r.hold.stderr, "relock: waiting for %s, %s by %s%s\n", shown(r.hold.lock.Name()), st.state(), st.by(), st.noted())
		return
	}
	attrs := st.holderAttributes()
	if d, known := age(st.Since); known {
		attrs = append(attrs, "held_for", d.Round(time.Millisecond))
	}
	r.log(slog.LevelInfo, attrs...)
}

// sayOutage reports that Redis does not answer.
func (r *waitReporter) sayOutage(err error) {
	if r.terminal {
		fmt.Fprintf(r.hold.stderr, "relock: waiting for %s, but Redis does not answer: %s\n", shown(r.hold.lock.Name()), words(err))
		return
	}
	r.log(slog.LevelWarn, "error", words(err))
}

func (r *waitReporter) log(level slog.Level, attrs ...any) {
	attrs = append([]any{"lock", r.hold.lock.Name(), "waited", time.Since(r.began).Round(time.Millisecond)}, attrs...)
	slog.New(slog.NewTextHandler(r.hold.stderr, nil)).Log(context.Background(), level, "waiting for a lock", attrs...)
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	file, ok := w.(interface{ Fd() uintptr })
	return ok && isTTY(int(file.Fd()))
}
