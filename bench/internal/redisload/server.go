package redisload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/redis/rueidis"
)

const binary = "redis-server"

// A Server is a redis-server that the benchmark started, on a free loopback port and with nothing on disk.
type Server struct {
	URL     string
	dir     string
	options []string
	process *exec.Cmd
	exited  chan struct{}
}

// ErrNoServer is returned when no redis-server is installed.
var ErrNoServer = errors.New("there is no redis-server here: install one, or name a Redis with -redis redis://host:port")

// StartServer starts the redis-server that is installed. The options are added to its command line, for example --io-threads 4.
func StartServer(ctx context.Context, options ...string) (*Server, error) {
	path, err := exec.LookPath(binary)
	if err != nil {
		return nil, ErrNoServer
	}
	dir, err := os.MkdirTemp("", "relock-bench-redis-")
	if err != nil {
		return nil, fmt.Errorf("folder for Redis: %w", err)
	}
	s := &Server{dir: dir, options: options}
	for range startTries {
		if err = s.launch(ctx, path); err == nil {
			return s, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	_ = os.RemoveAll(dir) // Redis works in an empty folder
	return nil, fmt.Errorf("start %s: %w", path, err)
}

// startTries is how often a port is chosen: another process may take a free port before Redis does.
const startTries = 5

// launch starts the process, and returns when it is reachable.
func (s *Server) launch(ctx context.Context, path string) error {
	if err := s.start(path); err != nil {
		return err
	}
	err := s.await(ctx)
	if err != nil {
		s.kill()
	}
	return err
}

func (s *Server) start(path string) error {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	host, port, _ := net.SplitHostPort(free.Addr().String()) // if this fails, the server's own error message shows why
	_ = free.Close()
	s.URL = "redis://" + net.JoinHostPort(host, port)
	options := []string{"--bind", host, "--port", port, "--save", "", "--appendonly", "no", "--dir", s.dir}
	s.process = exec.Command(path, append(options, s.options...)...)
	s.process.Stdout, s.process.Stderr = io.Discard, io.Discard
	s.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for this process only: the server must outlive the workers
	if err := s.process.Start(); err != nil {
		return err
	}
	s.exited = make(chan struct{})
	go func() {
		defer close(s.exited)
		_ = s.process.Wait() // it matters only that the process has ended
	}()
	return nil
}

// startWithin bounds how long a server may take to become reachable.
const startWithin = 30 * time.Second

func (s *Server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startWithin, errors.New("it does not answer"))
	defer cancel()
	for {
		if s.answers(ctx) {
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

// answers reports whether a client reaches this process, and not another process that has taken the port.
func (s *Server) answers(ctx context.Context) bool {
	client, err := Connect(ctx, s.URL)
	if err != nil {
		return false
	}
	defer client.Close()
	info, err := client.Do(ctx, client.B().Info().Section("server").Build()).ToString()
	return err == nil && strings.Contains(info, fmt.Sprintf("process_id:%d\r", s.process.Process.Pid))
}

// Stop kills the server and removes its folder.
func (s *Server) Stop() {
	s.kill()
	_ = os.RemoveAll(s.dir)
}

func (s *Server) kill() {
	_ = s.process.Process.Kill() // an error means that it has ended
	<-s.exited
}

// Connect makes a client for the counters and checks that the server can be reached.
func Connect(ctx context.Context, url string) (rueidis.Client, error) {
	option, err := rueidis.ParseURL(url)
	if err != nil {
		return nil, errors.New("-redis wants a URL such as redis://localhost:6379")
	}
	option.DisableCache = true // the embedded server lacks this setting, and is recognised later by its counters
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
