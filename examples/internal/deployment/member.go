package deployment

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/reentrant"
)

// A Member is what a child process works with: a client for its data, and a session on it for its locks.
type Member struct {
	Client  rueidis.Client
	Session *reentrant.Session
}

// Join connects to the Redis at a URL and opens a session there.
func Join(url string, opts ...reentrant.Option) (*Member, error) {
	client, err := Connect(url)
	if err != nil {
		return nil, fmt.Errorf("connect to Redis: %w", err)
	}
	session, err := NewSession(client, opts...)
	if err != nil {
		client.Close()
		return nil, err
	}
	return &Member{Client: client, Session: session}, nil
}

// ReportLosses makes a session write every lock that it loses to stderr, with the process and the reason.
func ReportLosses(process string) reentrant.Option {
	losses := slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}) // nothing else is an error
	return reentrant.WithLogger(slog.New(losses).With("process", process))
}

// NewSession opens a session on a client of [Connect]. A client may serve several sessions.
func NewSession(client rueidis.Client, opts ...reentrant.Option) (*reentrant.Session, error) {
	backend, err := redisbackend.New(client)
	if err != nil {
		return nil, err
	}
	return reentrant.NewSession(backend, opts...)
}

// closeWithin bounds how long a session may take to close.
const closeWithin = 5 * time.Second

// Leave closes the session and the client. ctx may have ended.
func (m *Member) Leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	defer m.Client.Close()
	if err := m.Session.Close(ctx); err != nil {
		return fmt.Errorf("close the session: %w", err)
	}
	return nil
}
