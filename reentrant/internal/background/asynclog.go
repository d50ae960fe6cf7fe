package background

import (
	"context"
	"log/slog"
	"time"
)

// A Log writes the session's log records in order, in a goroutine of its own. While the handler hangs, records above
// maxRecords are dropped.
type Log struct {
	handler slog.Handler
	feed    Feed
}

// maxRecords bounds how many records wait to be written.
const maxRecords = 1000

// NewLog returns a Log that writes to l's handler.
func NewLog(l *slog.Logger) Log {
	return Log{handler: l.Handler(), feed: NewFeed(maxRecords)}
}

// Log queues a record, which is written if the handler is enabled for its level.
func (w *Log) Log(level slog.Level, text string, attrs ...slog.Attr) {
	now := time.Now()
	w.feed.Post(func() { w.write(now, level, text, attrs) })
}

// LogAt is Log for something that happened at the given time. attrs is called when the record is written.
func (w *Log) LogAt(at time.Time, level slog.Level, text string, attrs func() []slog.Attr) {
	w.feed.Post(func() { w.write(at, level, text, attrs()) })
}

// Finish waits until all records are written, for feedGrace at most.
func (w *Log) Finish() { w.feed.Finish() }

// write is called by the feed.
func (w *Log) write(at time.Time, level slog.Level, text string, attrs []slog.Attr) {
	if !w.handler.Enabled(context.Background(), level) {
		return
	}
	r := slog.NewRecord(at, level, text, 0)
	r.AddAttrs(attrs...)
	if n := w.feed.Dropped.Swap(0); n > 0 {
		r.AddAttrs(slog.Int64("records_dropped", n))
	}
	_ = w.handler.Handle(context.Background(), r) // there is no caller to return the error to
}
