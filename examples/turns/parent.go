package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/relock-go/relock/examples/internal/deployment"
)

const replicas = 2

// run starts everything, prints the addresses, and ends it when ctx ends.
func run(ctx context.Context, opts options, stdout, stderr io.Writer) error {
	c, err := open(ctx, opts, stderr)
	if err != nil {
		return err
	}
	defer c.close()
	fmt.Fprintf(stdout, "redis      %s\n", c.redis.Shown)
	for _, r := range c.replicas {
		fmt.Fprintf(stdout, "replica %d  %s  (process %d; one that is killed is started again)\n", r.role.Number, r.address(), r.process().Pid)
	}
	fmt.Fprintln(stdout, "Ctrl-C ends it.")
	<-ctx.Done()
	return nil
}

// A cluster has the running replicas, with their Redis and database.
type cluster struct {
	replicas []*replica
	redis    *deployment.Redis
	folder   string // of the SQLite file
}

// open starts everything. If it returns no error, the caller must close the cluster.
func open(ctx context.Context, opts options, stderr io.Writer) (c *cluster, err error) {
	c = &cluster{}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if c.redis, err = deployment.Open(ctx, opts.redis); err != nil {
		return c, err
	}
	if c.folder, err = os.MkdirTemp("", "relock-turns-"); err != nil {
		return c, err
	}
	r := role{
		Steps: opts.steps, Step: opts.step, Lease: opts.lease, Redis: c.redis.URL, Database: filepath.Join(c.folder, "turns.db"),
	}
	if err := createStore(ctx, r.Database); err != nil {
		return c, err
	}
	var listeners []*net.TCPListener
	for range replicas {
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return c, err
		}
		listeners = append(listeners, l)
		r.Servers = append(r.Servers, fmt.Sprintf("http://%v", l.Addr()))
	}
	for i, l := range listeners {
		r.Number = i + 1
		each := &replica{role: r, listener: l, stderr: stderr, stop: make(chan struct{})}
		if err := each.start(); err != nil {
			return c, fmt.Errorf("start replica %d: %w", r.Number, err)
		}
		c.replicas = append(c.replicas, each)
	}
	return c, nil
}

// close ends the replicas, and then Redis and the database.
func (c *cluster) close() {
	for _, r := range c.replicas {
		r.close()
	}
	if c.redis != nil {
		c.redis.Close()
	}
	if c.folder != "" {
		_ = os.RemoveAll(c.folder)
	}
}

// A replica is a process that is started again when it ends. The parent keeps the replica's port open and passes it on, so that
// a request which comes in between waits for the next process.
type replica struct {
	role     role
	listener *net.TCPListener
	stderr   io.Writer
	stop     chan struct{} // closed to end it for good
	watching sync.WaitGroup

	mu    sync.Mutex
	child *exec.Cmd      // the process at work
	stdin io.WriteCloser // the input of child; when it is closed, the child ends
}

func (r *replica) address() string { return r.role.Servers[r.role.Number-1] }

// process returns the running process.
func (r *replica) process() *os.Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.child.Process
}

// start runs the first process, and replaces it when it ends.
func (r *replica) start() error {
	if err := r.spawn(); err != nil {
		return err
	}
	r.watching.Go(r.watch)
	return nil
}

// spawn runs this program again, as the replica.
func (r *replica) spawn() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	text, err := json.Marshal(r.role)
	if err != nil {
		return err
	}
	port, err := r.listener.File()
	if err != nil {
		return err
	}
	defer func() { _ = port.Close() }()
	child := exec.Command(program)
	child.Env = append(os.Environ(), childEnv+"="+string(text))
	child.Stderr = r.stderr
	child.ExtraFiles = []*os.File{port}
	stdin, err := child.StdinPipe()
	if err != nil {
		return err
	}
	if err := child.Start(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.child, r.stdin = child, stdin
	return nil
}

// watch starts the next process when a process has ended, until the replica is closed. Meanwhile only watch writes child and
// stdin.
func (r *replica) watch() {
	for {
		err := r.child.Wait()
		select {
		case <-r.stop:
			return
		case <-time.After(200 * time.Millisecond):
		}
		fmt.Fprintf(r.stderr, "replica %d has ended (%v) and is started again\n", r.role.Number, err)
		if err := r.spawn(); err != nil {
			fmt.Fprintf(r.stderr, "replica %d: %v\n", r.role.Number, err)
			return
		}
	}
}

// close ends the replica for good.
func (r *replica) close() {
	close(r.stop)
	r.mu.Lock()
	_ = r.stdin.Close()
	r.mu.Unlock()
	late := time.AfterFunc(10*time.Second, func() { _ = r.process().Kill() })
	defer late.Stop()
	r.watching.Wait()
	_ = r.listener.Close()
}
