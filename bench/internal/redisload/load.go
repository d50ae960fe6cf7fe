// Package redisload reads the load of a Redis server from its own counters.
package redisload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// Counters are what a server has counted since it started.
type Counters struct {
	Version string
	Calls   map[string]int64 // by command; includes calls within scripts
	CPU     time.Duration    // all threads, user and system
	Bytes   int64            // received and sent
	Keys    int64            // the number of keys that the server has now
	Memory  int64            // the memory that the server uses now, in bytes
}

// ErrNotReal is returned for a server that has no counters.
var ErrNotReal = errors.New("this server does not count its commands and its CPU time: a real Redis is needed, not an embedded one")

// Read reads a server's counters.
func Read(ctx context.Context, client rueidis.Client) (Counters, error) {
	text, err := client.Do(ctx, client.B().Info().Section("all").Build()).ToString()
	if err != nil {
		// The embedded server does not have this section, and returns an error.
		if server, ok := rueidis.IsRedisErr(err); ok && !strings.HasPrefix(server.Error(), "NO") {
			return Counters{}, fmt.Errorf("%w (its words: %s)", ErrNotReal, server.Error())
		}
		return Counters{}, fmt.Errorf("ask Redis for its counters: %w", err)
	}
	return parse(text)
}

// parse reads INFO's lines: field:value, and cmdstat_<command>:calls=<n>,usec=<n>,….
func parse(info string) (Counters, error) {
	fields := map[string]string{}
	c := Counters{Calls: map[string]int64{}}
	for line := range strings.Lines(info) {
		field, value, found := strings.Cut(strings.TrimSpace(line), ":")
		if command, ok := strings.CutPrefix(field, "cmdstat_"); ok && found {
			calls, err := countOf("calls=", value)
			if err != nil {
				return Counters{}, fmt.Errorf("INFO commandstats: %s: %w", command, err)
			}
			c.Calls[command] = calls
			continue
		}
		fields[field] = value
	}
	if fields["redis_version"] == "" || fields["used_cpu_user"] == "" || len(c.Calls) == 0 {
		return Counters{}, ErrNotReal
	}
	c.Version = fields["redis_version"]
	return c, c.add(fields)
}

func (c *Counters) add(fields map[string]string) error {
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(fields[name], 64)
		if err != nil {
			return fmt.Errorf("INFO: %s: %w", name, err)
		}
		c.CPU += time.Duration(seconds * float64(time.Second))
	}
	for _, name := range []string{"total_net_input_bytes", "total_net_output_bytes"} {
		bytes, err := strconv.ParseInt(fields[name], 10, 64)
		if err != nil {
			return fmt.Errorf("INFO: %s: %w", name, err)
		}
		c.Bytes += bytes
	}
	return c.addKept(fields)
}

// addKept reads used_memory:<bytes> and db<n>:keys=<n>,…. A database without keys has no line.
func (c *Counters) addKept(fields map[string]string) (err error) {
	if c.Memory, err = strconv.ParseInt(fields["used_memory"], 10, 64); err != nil {
		return fmt.Errorf("INFO: used_memory: %w", err)
	}
	for field, value := range fields {
		if number, ok := strings.CutPrefix(field, "db"); ok && isNumber(number) {
			n, err := countOf("keys=", value)
			if err != nil {
				return fmt.Errorf("INFO: %s: %w", field, err)
			}
			c.Keys += n
		}
	}
	return nil
}

func isNumber(text string) bool {
	_, err := strconv.Atoi(text)
	return err == nil
}

// countOf returns the first count of a line such as calls=7,usec=9. The line must begin with name.
func countOf(name, stats string) (int64, error) {
	first, _, _ := strings.Cut(stats, ",")
	count, ok := strings.CutPrefix(first, name)
	if !ok {
		return 0, fmt.Errorf("%q does not begin with %s", stats, name)
	}
	return strconv.ParseInt(count, 10, 64)
}

// Since returns the difference to an earlier reading.
func (c Counters) Since(before Counters) Counters {
	d := Counters{Version: c.Version, Calls: map[string]int64{}, CPU: c.CPU - before.CPU, Bytes: c.Bytes - before.Bytes,
		Keys: c.Keys - before.Keys, Memory: c.Memory - before.Memory}
	for command, calls := range c.Calls {
		if n := calls - before.Calls[command]; n != 0 {
			d.Calls[command] = n
		}
	}
	return d
}

// scripts and connection are commands that scripts cannot call, or that no script here calls. So their calls came from a client.
var (
	scripts    = []string{"eval", "eval_ro", "evalsha", "evalsha_ro", "fcall", "fcall_ro"}
	connection = []string{"auth", "client", "command", "hello", "ping", "quit", "select", "script",
		"subscribe", "unsubscribe", "ssubscribe", "sunsubscribe", "psubscribe", "punsubscribe", "multi", "exec"}
)

// asking is the command that this package itself sends.
const asking = "info"

// FromClient reports whether a command came from a client and not from within a script. plain are the commands that the clients
// send outside of scripts, apart from the commands that run scripts and those that a connection needs.
func FromClient(command string, plain []string) bool {
	command, _, _ = strings.Cut(command, "|") // CLIENT SETINFO
	return slices.Contains(scripts, command) || slices.Contains(connection, command) || slices.Contains(plain, command)
}

// Pushes returns the number of messages that were published.
func (c Counters) Pushes() int64 { return c.Calls["publish"] + c.Calls["spublish"] }

// Commands returns the number of calls that came from clients, and of those that the clients' scripts made.
func (c Counters) Commands(plain []string) (fromClients, inner int64) {
	for command, calls := range c.Calls {
		switch {
		case command == asking:
		case FromClient(command, plain):
			fromClients += calls
		default:
			inner += calls
		}
	}
	return fromClients, inner
}
