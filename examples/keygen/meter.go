package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/redisbackend/redistest"
)

// A meter counts what the lock asks of Redis, and has the embedded Redis if there is one.
type meter struct {
	url   string // for the children
	shown string // for people

	embedded *redistest.Server // nil with a server of its own
	client   rueidis.Client    // nil with the embedded one
	before   int64             // what the server had counted at the start
}

// A cost is what the lock asked of Redis, and who counted it.
type cost struct {
	commands int64
	counted  string
}

// openMeter connects to the Redis in opts, or starts the embedded one.
func openMeter(ctx context.Context, opts options) (*meter, error) {
	switch {
	case opts.lock == lockNone:
		return &meter{shown: "not used"}, nil
	case opts.redis != "":
		return dialMeter(ctx, opts.redis)
	}
	server, err := redistest.New()
	if err != nil {
		return nil, fmt.Errorf("start the embedded Redis: %w", err)
	}
	return &meter{url: "redis://" + server.Addr(), shown: "embedded, at " + server.Addr(), embedded: server}, nil
}

// dialMeter connects to a server, only to read its counters.
func dialMeter(ctx context.Context, address string) (*meter, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("-redis is not a URL")
	}
	option, err := rueidis.ParseURL(address)
	if err != nil {
		return nil, fmt.Errorf("-redis %s: %w", u.Redacted(), err)
	}
	option.DisableCache = true // which servers before 6 do not have, and nobody needs here
	client, err := rueidis.NewClient(option)
	if err != nil {
		return nil, fmt.Errorf("connect to Redis at %s: %w", u.Redacted(), err)
	}
	m := &meter{url: address, shown: u.Redacted(), client: client}
	if m.before, err = m.scripts(ctx); err != nil {
		client.Close()
		return nil, err
	}
	return m, nil
}

// read gives the cost since the meter was opened. The children's own count is said to be so.
func (m *meter) read(ctx context.Context, children report) (cost, error) {
	switch {
	case m.embedded != nil:
		return cost{commands: int64(children.Commands), counted: "counted by the sessions"}, nil
	case m.client != nil:
		after, err := m.scripts(ctx)
		return cost{commands: after - m.before, counted: "EVAL and EVALSHA in the server's INFO commandstats"}, err
	}
	return cost{}, nil
}

// scripts asks the server how many scripts it has run: every verb of the lock is one. What runs inside of a script
// is not counted again.
func (m *meter) scripts(ctx context.Context) (int64, error) {
	stats, err := m.client.Do(ctx, m.client.B().Info().Section("commandstats").Build()).ToString()
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

// close ends the embedded server or the connection.
func (m *meter) close() {
	if m.embedded != nil {
		m.embedded.Close()
	}
	if m.client != nil {
		m.client.Close()
	}
}
