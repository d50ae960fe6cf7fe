package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/relock-go/relock/examples/internal/deployment"
)

// run opens the cinema, prints the addresses, and closes it when ctx ends or no server is left.
func run(ctx context.Context, opts options, stdout, stderr io.Writer) error {
	c, err := open(ctx, opts, stderr)
	if err != nil {
		return err
	}
	defer c.close()
	fmt.Fprintf(stdout, "redis     %s\ndatabase  %s\n", c.redis.Shown, c.shown)
	for _, p := range c.servers {
		fmt.Fprintf(stdout, "server %d  %s  (kill -9 %d, and go on at the other)\n", p.number, p.address, p.pid())
	}
	fmt.Fprintf(stdout, "locks     go run ./cmd/relock list --redis %s 'seats:*'\n", c.redis.Redacted())
	fmt.Fprintf(stdout, "A seat is held for %v. Two visitors are two browsers, or a private window. Ctrl-C ends it.\n", opts.hold)
	for range c.servers {
		select {
		case <-ctx.Done():
			return nil
		case p := <-c.ended:
			if ctx.Err() != nil { // the servers end, too
				return nil
			}
			fmt.Fprintln(stderr, c.ending(p))
		}
	}
	return errors.New("no server is left")
}

// ending returns a text that says which server has ended, and which servers can still answer.
func (c *cinema) ending(ended *process) string {
	text := fmt.Sprintf("server %d has ended: %v", ended.number, ended.err)
	for _, p := range c.servers {
		select {
		case <-p.gone:
		default:
			text += fmt.Sprintf("; the holds go on at server %d, %s", p.number, p.address)
		}
	}
	return text
}

// A cinema has the running servers, with their Redis and database.
type cinema struct {
	servers []*process
	ended   chan *process // receives each server when it ends
	redis   *deployment.Redis
	shown   string // the database
	folder  string // of the SQLite file
}

// open starts everything. If it returns no error, the caller must close the cinema.
func open(ctx context.Context, opts options, stderr io.Writer) (c *cinema, err error) {
	c = &cinema{ended: make(chan *process, opts.servers)}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if c.redis, err = deployment.Open(ctx, opts.redis); err != nil {
		return c, err
	}
	if err := c.prepare(ctx, &opts); err != nil {
		return c, err
	}
	if opts.show.IsZero() {
		opts.show = nextShow(time.Now())
	}
	addresses := []string{}
	for i := range opts.servers {
		p, err := start(opts.role(i+1, c.redis.URL), stderr, c.ended)
		if err != nil {
			return c, fmt.Errorf("start server %d: %w", i+1, err)
		}
		c.servers = append(c.servers, p)
		addresses = append(addresses, p.address)
	}
	for _, p := range c.servers {
		if err := json.NewEncoder(p.stdin).Encode(addresses); err != nil {
			return c, fmt.Errorf("start server %d: %w", p.number, err)
		}
	}
	return c, nil
}

// prepare makes the table of sales, in a database of its own if none is given.
func (c *cinema) prepare(ctx context.Context, opts *options) (err error) {
	if opts.dsn == "" {
		if c.folder, err = os.MkdirTemp("", "relock-seats-"); err != nil {
			return err
		}
		opts.dsn = "sqlite://" + filepath.Join(c.folder, "seats.db")
	}
	src, err := parseSource(opts.dsn)
	if err != nil {
		return err
	}
	c.shown = src.shown
	sales, err := openSales(ctx, src)
	if err != nil {
		return err
	}
	return errors.Join(sales.create(ctx), sales.close())
}

// nextShow returns when the next film begins: at 20:15 every day.
func nextShow(now time.Time) time.Time {
	show := time.Date(now.Year(), now.Month(), now.Day(), 20, 15, 0, 0, now.Location())
	if show.Before(now) {
		show = show.AddDate(0, 0, 1)
	}
	return show
}

// role returns a server's role.
func (o options) role(number int, redis string) role {
	r := role{Number: number, Hold: o.hold, Payment: o.payment, Show: o.show, Redis: redis, DSN: o.dsn}
	if o.port > 0 {
		r.Port = o.port + number - 1
	}
	return r
}

// close ends the servers, and then Redis and the database.
func (c *cinema) close() {
	for _, p := range c.servers {
		p.stop()
	}
	if c.redis != nil {
		c.redis.Close()
	}
	if c.folder != "" {
		_ = os.RemoveAll(c.folder)
	}
}

// A process is one server as its parent sees it.
type process struct {
	number  int
	address string
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	gone    chan struct{} // closed when it has ended
	err     error         // how the process ended; set before gone is closed
}

// start runs this program again, and waits until it can be reached.
func start(r role, stderr io.Writer, ended chan<- *process) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	p := &process{number: r.Number, cmd: exec.Command(program), gone: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	p.cmd.Stderr = stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(stdout)
	if !lines.Scan() {
		return nil, errors.Join(errors.New("it ended before it could be reached"), p.cmd.Wait())
	}
	p.address = lines.Text()
	go func() {
		p.err = p.cmd.Wait()
		close(p.gone)
		ended <- p
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// kill ends the server with SIGKILL, as a crash would.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.gone
}

// stop makes the server end, and kills it if it does not end in time.
func (p *process) stop() {
	_ = p.stdin.Close()
	select {
	case <-p.gone:
	case <-time.After(30 * time.Second):
		p.kill()
	}
}
