package main

import (
	"bufio"
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
	"sync"
	"syscall"
	"time"

	"github.com/relock-go/relock/examples/internal/deployment"
	"github.com/relock-go/relock/reentrant"
)

// childEnv has the role of a child, in JSON.
const childEnv = "RELOCK_EXAMPLE_SEATS"

// A role is the work that the parent gives a child.
type role struct {
	Number  int // 1 for server 1
	Port    int // 0 for any port that is free
	Hold    time.Duration
	Payment time.Duration
	Show    time.Time
	Redis   string
	DSN     string
}

// isChild reports whether this process is a server that a parent started.
func isChild() bool {
	_, ok := os.LookupEnv(childEnv)
	return ok
}

// childMain runs a server's process. It talks to its parent in lines:
//
//	child → parent   a line with its address, once it can be reached
//	parent → child   a line with the addresses of all; the end of the input means stop
//
// If the parent ends, the child's input ends, and so the child ends, too.
func childMain(stdin io.Reader, stdout, stderr io.Writer) int {
	signal.Ignore(os.Interrupt) // Ctrl-C goes to all processes; this one waits for the parent
	var r role
	err := json.Unmarshal([]byte(os.Getenv(childEnv)), &r)
	if err == nil {
		err = r.play(context.Background(), stdin, stdout, stderr)
	}
	if err != nil {
		fmt.Fprintf(stderr, "seats: server %d: %v\n", r.Number, err)
		return exitError
	}
	return exitOK
}

// play serves until the input ends.
func (r role) play(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", r.Port))
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	log := slog.New(slog.NewTextHandler(stderr, nil)).With("server", r.Number)
	c, err := r.open(ctx, log)
	if err != nil {
		return err
	}
	defer c.close()
	fmt.Fprintf(stdout, "http://%v\n", listener.Addr())
	lines := bufio.NewScanner(stdin)
	if !lines.Scan() {
		return nil
	}
	if err := json.Unmarshal(lines.Bytes(), &c.server.servers); err != nil {
		return fmt.Errorf("addresses of the servers: %w", err)
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	go func() {
		defer stop()
		for lines.Scan() { // until the end
		}
	}()
	return c.serve(ctx, listener)
}

// A counter has a desk with its server, its Redis and its database.
type counter struct {
	server *server
	board  *board
	member *deployment.Member
	sales  *sales
}

// open connects to Redis and SQL, and reads the hall for the first time.
func (r role) open(ctx context.Context, log *slog.Logger) (*counter, error) {
	telemetry, err := newTelemetry(ctx, r.Number)
	if err != nil {
		return nil, err
	}
	// Every call here is for a visitor, so a call without an owner is an error.
	name := fmt.Sprintf("server-%d", r.Number)
	member, err := deployment.Join(r.Redis, reentrant.WithExplicitOwners(), reentrant.WithLease(leaseOf(r.Hold)),
		reentrant.WithPortableHoldsLeft(), reentrant.WithName(name),
		reentrant.WithObserver(telemetry.Observer()))
	if err != nil {
		return nil, err
	}
	telemetry.Watch(member.Session)
	src, err := parseSource(r.DSN)
	if err != nil {
		return nil, err
	}
	sales, err := openSales(ctx, src)
	if err != nil {
		member.Client.Close()
		return nil, err
	}
	// The board has a session of its own. So all commands of the other session are for visitors.
	looking, err := deployment.NewSession(member.Client, reentrant.WithName(name+"-board"))
	if err != nil {
		member.Client.Close()
		return nil, errors.Join(err, sales.close())
	}
	board := newBoard(looking, member.Client, sales, r.Hold, log)
	board.refresh(ctx)
	return &counter{
		member: member, sales: sales, board: board,
		server: &server{
			desk:  &desk{session: member.Session, sales: sales, hold: r.Hold, charge: waiting(r.Payment)},
			board: board, metrics: telemetry.page, number: r.Number, show: r.Show, patient: r.Payment + 10*time.Second, log: log,
		},
	}, nil
}

// serve serves requests until ctx ends, and then finishes the requests that are under way.
func (c *counter) serve(ctx context.Context, listener net.Listener) error {
	var looking sync.WaitGroup
	defer looking.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	looking.Go(func() { c.board.run(ctx) })
	web := &http.Server{
		Handler:           c.server.handler(),
		BaseContext:       func(net.Listener) context.Context { return ctx }, // when ctx ends, so do the streams of events
		ReadHeaderTimeout: 10 * time.Second,
	}
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	patience, done := context.WithTimeout(context.Background(), c.server.patient)
	defer done()
	if err := web.Shutdown(patience); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// close ends the connections. The holds belong to the visitors and outlive the server: a visitor can continue with them at the
// other server.
func (c *counter) close() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = c.member.Session.Close(ended) // holds about which Redis is not asked end with their leases
	_ = c.board.session.Close(ended)
	c.member.Client.Close()
	_ = c.sales.close()
}
