package reentrant

import (
	"context"
	"log/slog"
	"time"
)

// An asyncLog writes the session's log, in the order of what happened. A handler that hangs costs records.
type asyncLog struct {
	handler slog.Handler
	feed    feed
}

// maxRecords bounds how many records wait to be written.
const maxRecords = 1000

func newAsyncLog(l *slog.Logger) asyncLog {
	return asyncLog{handler: l.Handler(), feed: feed{jobs: workers{size: 1}, limit: maxRecords}}
}

// log has a record written soon, if anybody wants to read it.
func (w *asyncLog) log(level slog.Level, text string, attrs ...slog.Attr) {
	now := time.Now()
	w.feed.post(func() { w.write(now, level, text, attrs) })
}

// event has a record of an event written soon.
func (w *asyncLog) event(level slog.Level, e Event) {
	w.feed.post(func() { w.write(e.At, level, e.Kind.String(), e.attributes()) })
}

// write is called by the feed.
func (w *asyncLog) write(at time.Time, level slog.Level, text string, attrs []slog.Attr) {
	if !w.handler.Enabled(context.Background(), level) {
		return
	}
	r := slog.NewRecord(at, level, text, 0)
	r.AddAttrs(attrs...)
	if n := w.feed.dropped.Swap(0); n > 0 {
		r.AddAttrs(slog.Int64("records_dropped", n))
	}
	_ = w.handler.Handle(context.Background(), r) // there is nobody to tell
}

// log writes a record.
func (s *session) log(level slog.Level, text string, attrs ...slog.Attr) {
	s.logWriter.log(level, text, attrs...)
}
