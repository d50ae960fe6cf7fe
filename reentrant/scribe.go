package reentrant

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// A scribe writes the session's log, in the order of what happened and beside everything else: a handler that is slow
// delays neither a renewal nor a loss. One that hangs costs records.
type scribe struct {
	handler slog.Handler
	records crew
	dropped atomic.Int64 // since the last one that was written
}

const (
	// maxRecords bounds how many records wait to be written.
	maxRecords = 1000
	// lastWords is how long a session that is closed waits for its log.
	lastWords = time.Second
)

func newScribe(l *slog.Logger) scribe {
	return scribe{handler: l.Handler(), records: crew{size: 1}}
}

// log has a record written soon, if anybody wants to read it.
func (w *scribe) log(level slog.Level, text string, attrs ...slog.Attr) {
	if w.handler.Enabled(context.Background(), level) {
		w.write(level, text, attrs)
	}
}

// write has a record written soon.
func (w *scribe) write(level slog.Level, text string, attrs []slog.Attr) {
	if w.records.backlog() >= maxRecords {
		w.dropped.Add(1)
		return
	}
	r := slog.NewRecord(time.Now(), level, text, 0)
	r.AddAttrs(attrs...)
	w.records.do(func() {
		if n := w.dropped.Swap(0); n > 0 {
			r.AddAttrs(slog.Int64("records_dropped", n))
		}
		_ = w.handler.Handle(context.Background(), r) // there is nobody to tell
	})
}

// finish waits until everything is written, but not for ever.
func (w *scribe) finish() {
	limit := time.NewTimer(lastWords)
	defer limit.Stop()
	if idle := w.records.busy(); idle != nil {
		select {
		case <-idle:
		case <-limit.C:
		}
	}
}

// log writes a record.
func (s *core) log(level slog.Level, text string, attrs ...slog.Attr) {
	s.scribe.log(level, text, attrs...)
}
