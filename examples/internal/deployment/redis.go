// Package deployment has the Redis that the processes of a job share: the one that the user names, or an embedded one that
// begins and ends with the parent.
package deployment

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/redisbackend/redistest"
)

// A Redis is the Redis of a job, as the parent process uses it. The zero value stands for none: the job costs no commands.
type Redis struct {
	URL    string         // for the children
	Shown  string         // for people, without the password
	Client rueidis.Client // for the job's own data

	embedded *redistest.Server // nil if the user has named a server
	before   int64             // what the server had counted at the start
}

// Redacted returns the URL without the password.
func (r *Redis) Redacted() string {
	u, err := url.Parse(r.URL)
	if err != nil {
		return "URL"
	}
	return u.Redacted()
}

// A Cost is the load of a job on Redis.
type Cost struct {
	Commands int64
	Counted  string // how they were counted
}

// Open connects to the Redis at a URL that came with the flag -redis, or, if there is none, starts the embedded one.
func Open(ctx context.Context, address string) (*Redis, error) {
	if address != "" {
		return dial(ctx, address)
	}
	server, err := redistest.New()
	if err != nil {
		return nil, fmt.Errorf("start the embedded Redis: %w", err)
	}
	return &Redis{URL: "redis://" + server.Addr(), Shown: "embedded, at " + server.Addr(), Client: server.Client(), embedded: server}, nil
}

// CheckURL returns an error if the value of the flag -redis is not the URL of a Redis. The error does not repeat the value,
// which may contain a password.
func CheckURL(address string) error {
	if address == "" {
		return nil
	}
	if _, err := parseURL(address); err != nil {
		return err
	}
	if _, err := rueidis.ParseURL(address); err != nil {
		return errors.New("-redis: the number of the database, or another setting, is not valid")
	}
	return nil
}

func parseURL(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil || !slices.Contains([]string{"redis", "rediss", "valkey", "valkeys", "unix"}, u.Scheme) || u.Opaque != "" {
		return nil, errors.New("-redis is not the URL of a Redis, redis://… or rediss://…")
	}
	return u, nil
}

// dial connects to a server.
func dial(ctx context.Context, address string) (*Redis, error) {
	u, err := parseURL(address)
	if err != nil {
		return nil, err
	}
	client, err := Connect(address)
	if err != nil {
		return nil, fmt.Errorf("connect to Redis at %s: %w", u.Redacted(), err)
	}
	r := &Redis{URL: address, Shown: u.Redacted(), Client: client}
	if r.before, err = r.scripts(ctx); err != nil {
		client.Close()
		return nil, err
	}
	return r, nil
}

// answerWithin is how long a client waits for a reply. It is longer than a busy machine stands still, because an error of its
// data ends a job. It is shorter than a lease, so that a renewal can be tried twice.
const answerWithin = 5 * time.Second

// dialWithin is how long it may take to connect to a server: all processes of a job start at once.
const dialWithin = 30 * time.Second

// Connect makes a client for a URL, as package redisbackend wants it.
func Connect(address string) (rueidis.Client, error) {
	option, err := rueidis.ParseURL(address)
	if err != nil {
		return nil, err
	}
	option.DisableCache = true // servers before 6 do not have it, and no example needs it
	option.PipelineMultiplex = -1
	option.ConnWriteTimeout = answerWithin
	option.Dialer.Timeout = dialWithin
	return rueidis.NewClient(option)
}

// Cost returns the cost since Open. own is the children's own count, which is used with the embedded Redis.
func (r *Redis) Cost(ctx context.Context, own int64) (Cost, error) {
	switch {
	case r.embedded != nil:
		return Cost{Commands: own, Counted: "counted by the processes"}, nil
	case r.Client != nil:
		after, err := r.scripts(ctx)
		return Cost{Commands: after - r.before, Counted: "EVAL and EVALSHA in the server's INFO commandstats"}, err
	}
	return Cost{}, nil
}

// scripts returns how many scripts the server has run. Every verb of the lock is a script. Commands inside a script are not
// counted.
func (r *Redis) scripts(ctx context.Context) (int64, error) {
	stats, err := r.Client.Do(ctx, r.Client.B().Info().Section("commandstats").Build()).ToString()
	if err != nil {
		return 0, fmt.Errorf("read INFO commandstats: %w", err)
	}
	return scriptCalls(stats), nil
}

// scriptCalls adds up the script calls in the text of INFO commandstats, whose lines read
// "cmdstat_evalsha:calls=20,usec=…".
func scriptCalls(stats string) int64 {
	var sum int64
	for line := range strings.Lines(stats) {
		name, values, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch strings.TrimPrefix(name, "cmdstat_") {
		case "eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro":
		default:
			continue
		}
		calls, _, _ := strings.Cut(strings.TrimPrefix(values, "calls="), ",")
		n, err := strconv.ParseInt(calls, 10, 64)
		if err == nil {
			sum += n
		}
	}
	return sum
}

// Close ends the embedded server, or the connection.
func (r *Redis) Close() {
	switch {
	case r.embedded != nil:
		r.embedded.Close()
	case r.Client != nil:
		r.Client.Close()
	}
}
