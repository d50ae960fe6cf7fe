package background

import (
	"context"
	"log/slog"
	"time"
)

// A Log writes the session's log records in order, in a goroutine of its own. While the handler hangs, records above
// maxRecords are dropped. A handler that panics, or ends its goroutine, drops the record. The next record that is written
// has the number of those that were dropped.
type Log struct {
	handler slog.Handler
	common  []slog.Attr // of every record
	feed    Feed
}

// maxRecords bounds how many records wait to be written.
const maxRecords = 1000

// NewLog returns a Log that writes to l's handler, and ends each record with common.
func NewLog(l *slog.Logger, common ...slog.Attr) Log {
	return Log{handler: l.Handler(), common: common, feed: NewFeed(maxRecords)}
}

// Log queues a record, which is written if the handler is enabled for its level.
func (l *Log) Log(level slog.Level, text string, attrs ...slog.Attr) {
	l.LogAt(time.Now(), level, text, func() []slog.Attr { return attrs })
}

// LogAt is Log for something that happened at the given time. attrs is called when the record is written.
func (l *Log) LogAt(at time.Time, level slog.Level, text string, attrs func() []slog.Attr) {
	l.feed.Post(func() { l.write(at, level, text, attrs) })
}

// Finish waits until all records are written, for feedGrace at most.
func (l *Log) Finish() { l.feed.Finish() }

// Enabled reports whether the handler takes records of a level. A handler that panics does not.
func (l *Log) Enabled(level slog.Level) (enabled bool) {
	defer func() { _ = recover() }()
	return l.handler.Enabled(context.Background(), level)
}

// write is called by the feed.
func (l *Log) write(at time.Time, level slog.Level, text string, attrs func() []slog.Attr) {
	dropped := l.feed.Dropped.Swap(0)
	returned := false
	defer func() {
		if !returned {
			_ = recover() // nil after a runtime.Goexit, which goes on
			dropped++
		}
		l.feed.Dropped.Add(dropped)
	}()
	if l.handler.Enabled(context.Background(), level) {
		r := slog.NewRecord(at, level, text, 0)
		r.AddAttrs(attrs()...)
		r.AddAttrs(l.common...)
		if dropped > 0 {
			r.AddAttrs(slog.Int64("records_dropped", dropped))
		}
		_ = l.handler.Handle(context.Background(), r) // there is no caller to return the error to
		dropped = 0
	}
	returned = true
}
