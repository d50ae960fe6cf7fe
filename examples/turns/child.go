package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/relock-go/relock/examples/internal/deployment"
	"github.com/relock-go/relock/examples/internal/screen"
)

// childEnv has the role of a child, in JSON.
const childEnv = "RELOCK_EXAMPLE_TURNS"

// A role is the work that the parent gives a child.
type role struct {
	Number   int      // 1 for replica 1
	Servers  []string // addresses of all
	Steps    int
	Step     time.Duration
	Lease    time.Duration
	Redis    string
	Database string
}

// isChild reports whether this process is a replica that a parent started.
func isChild() bool {
	_, ok := os.LookupEnv(childEnv)
	return ok
}

// childMain runs a replica's process. Its port is file 3. When its input ends, the process stops. So a child whose parent has
// ended ends, too.
func childMain(stdin io.Reader, stderr io.Writer) int {
	signal.Ignore(os.Interrupt) // Ctrl-C goes to all processes; this one waits for the parent
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	go func() {
		defer stop()
		_, _ = io.Copy(io.Discard, stdin)
	}()
	var r role
	err := json.Unmarshal([]byte(os.Getenv(childEnv)), &r)
	if err == nil {
		err = r.play(ctx, slog.New(slog.NewTextHandler(stderr, nil)).With("replica", r.Number))
	}
	if err != nil {
		fmt.Fprintf(stderr, "turns: replica %d: %v\n", r.Number, err)
		return screen.ExitFinding
	}
	return screen.ExitClean
}

// play serves until ctx ends. The holds of the replica's turns stay, for its next process.
func (r role) play(ctx context.Context, log *slog.Logger) error {
	listener, err := net.FileListener(os.NewFile(3, "port"))
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	a, err := r.open(ctx, log)
	if err != nil {
		return err
	}
	defer a.close()
	if err := a.recover(); err != nil {
		return err
	}
	web := &http.Server{
		Handler:           (&server{agent: a, servers: r.Servers}).handler(),
		BaseContext:       func(net.Listener) context.Context { return ctx }, // when ctx ends, so do the streams of events
		ReadHeaderTimeout: 10 * time.Second,
	}
	context.AfterFunc(ctx, func() { _ = web.Close() })
	if err := web.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// open connects to Redis and SQL. The turns of the agent end with ctx.
func (r role) open(ctx context.Context, log *slog.Logger) (*agent, error) {
	client, err := deployment.Connect(r.Redis)
	if err != nil {
		return nil, err
	}
	store, err := openStore(ctx, r.Database)
	if err != nil {
		client.Close()
		return nil, err
	}
	return &agent{
		replica: r.Number, steps: r.Steps, step: r.Step, lease: r.Lease, client: client, store: store, log: log, alive: ctx,
	}, nil
}
