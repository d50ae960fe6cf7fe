package redisload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/redis/rueidis"
)

const binary = "redis-server"

// A Server is a redis-server of our own, on a free loopback port and with nothing on disk.
type Server struct {
	URL     string
	dir     string
	process *exec.Cmd
	exited  chan struct{}
}

// ErrNoServer says what to do about it.
var ErrNoServer = errors.New("there is no redis-server here: install one, or name a Redis with -redis redis://host:port")

// StartServer starts the redis-server that is installed.
func StartServer(ctx context.Context) (*Server, error) {
	path, err := exec.LookPath(binary)
	if err != nil {
		return nil, ErrNoServer
	}
	dir, err := os.MkdirTemp("", "relock-bench-redis-")
	if err != nil {
		return nil, fmt.Errorf("folder for Redis: %w", err)
	}
	s := &Server{dir: dir, exited: make(chan struct{})}
	if err := s.start(path); err != nil {
		_ = os.RemoveAll(dir) // an empty folder
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	if err := s.await(ctx); err != nil {
		s.Stop()
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	return s, nil
}

func (s *Server) start(path string) error {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	host, port, _ := net.SplitHostPort(free.Addr().String()) // its own words
	_ = free.Close()
	s.URL = "redis://" + net.JoinHostPort(host, port)
	s.process = exec.Command(path, "--bind", host, "--port", port, "--save", "", "--appendonly", "no", "--dir", s.dir)
	s.process.Stdout, s.process.Stderr = io.Discard, io.Discard
	s.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for us: it must outlive the workers
	if err := s.process.Start(); err != nil {
		return err
	}
	go func() {
		defer close(s.exited)
		_ = s.process.Wait() // that it ended is what counts
	}()
	return nil
}

// startWithin bounds how long a server may take to answer.
const startWithin = 10 * time.Second

func (s *Server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startWithin, errors.New("it does not answer"))
	defer cancel()
	for {
		client, err := Connect(ctx, s.URL)
		if err == nil {
			client.Close()
			return nil
		}
		select {
		case <-s.exited:
			return errors.New("it ended at once")
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Stop kills the server and removes its folder.
func (s *Server) Stop() {
	_ = s.process.Process.Kill() // an error means that it has ended
	<-s.exited
	_ = os.RemoveAll(s.dir)
}

// Connect makes a client for the counters and sees that the server answers.
func Connect(ctx context.Context, url string) (rueidis.Client, error) {
	option, err := rueidis.ParseURL(url)
	if err != nil {
		return nil, errors.New("-redis wants a URL such as redis://localhost:6379")
	}
	option.DisableCache = true // the embedded one does not know it, and has to be told apart by its counters
	option.AlwaysRESP2 = true
	client, err := rueidis.NewClient(option)
	if err != nil {
		return nil, fmt.Errorf("connect to Redis: %w", err)
	}
	if err := client.Do(ctx, client.B().Ping().Build()).Error(); err != nil {
		client.Close()
		return nil, fmt.Errorf("connect to Redis: %w", err)
	}
	return client, nil
}
