package cookbook

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/relock-go/relock"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/reentrant"
)

// Run opens a session, does the program's work with it, and gives back what is still held.
func Run(ctx context.Context, url string, work func(ctx context.Context, session *reentrant.Session) error) error {
	session, err := relock.Open(ctx, url,
		relock.WithBackend(redisbackend.WithPrefix("lock:")), // no other data is under lock:
		relock.WithSession(reentrant.WithLogger(slog.Default())))
	if err != nil {
		return err // the server's own words: wrong address, wrong password
	}
	err = work(ctx, session)
	// ctx may have ended: that is how programs are asked to stop. Holders get five more seconds.
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(err, session.Close(ending))
}
