package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/redis/rueidis"
)

// lockName is the lock's name, and so its key in Redis: HGETALL buffer shows its holder.
const lockName = "buffer"

// The buffer's keys. The braces put them on the lock's own node of a Cluster.
const (
	bookKey  = "{" + lockName + "}:book"  // hash: fence, fullest, and made:<producer> for each producer
	itemsKey = "{" + lockName + "}:items" // list: the buffer, longest first
	takenKey = "{" + lockName + "}:taken" // list: each item that was taken, and by which process
)

//go:embed *.lua
var scripts embed.FS

var (
	lookScript = script("look.lua")
	putScript  = script("put.lua")
	takeScript = script("take.lua")
)

func script(name string) *rueidis.Lua { return rueidis.NewLuaScript(text("fence.lua") + text(name)) }

func text(name string) string {
	source, err := scripts.ReadFile(name)
	if err != nil {
		panic(err) // the file was there when this was compiled
	}
	return string(source)
}

// errStale refuses a step because a later hold has begun.
var errStale = errors.New("a later hold was here: this one is over")

// A store is the buffer in Redis. Each of its methods that a worker calls is one script.
type store struct {
	client   rueidis.Client
	commands atomic.Int64
}

// A view is the buffer as a worker sees it.
type view struct {
	length int64 // items in it
	first  int64 // the first of them
	made   int64 // items that the producer has put
	taken  int64 // items taken by all
}

func (s *store) look(ctx context.Context, token uint64, producer int) (view, error) {
	n, err := s.run(ctx, lookScript, []string{bookKey, itemsKey, takenKey}, stamp(token), strconv.Itoa(producer)).AsIntSlice()
	if err != nil {
		return view{}, reason("look", err)
	}
	return view{length: n[0], first: n[1], made: n[2], taken: n[3]}, nil
}

func (s *store) put(ctx context.Context, token uint64, producer int, item int64) error {
	result := s.run(ctx, putScript, []string{bookKey, itemsKey}, stamp(token), strconv.Itoa(producer), count(item))
	return reason("put", result.Error())
}

func (s *store) take(ctx context.Context, token uint64, item int64, process string) error {
	result := s.run(ctx, takeScript, []string{bookKey, itemsKey, takenKey}, stamp(token), count(item), process)
	return reason("take", result.Error())
}

func (s *store) run(ctx context.Context, script *rueidis.Lua, keys []string, args ...string) rueidis.RedisResult {
	s.commands.Add(1)
	return script.Exec(ctx, s.client, keys, args)
}

// reason returns the error for an operation that failed.
func reason(step string, err error) error {
	switch answer, ok := rueidis.IsRedisErr(err); {
	case err == nil:
		return nil
	case ok && strings.HasPrefix(answer.Error(), "STALE"):
		return fmt.Errorf("%s: %w", step, errStale)
	}
	return fmt.Errorf("%s: %w", step, err)
}

// clear removes the buffer. It is also called before a job, because an earlier job may have left a buffer.
func (s *store) clear(ctx context.Context) error {
	err := s.client.Do(ctx, s.client.B().Del().Key(bookKey, itemsKey, takenKey).Build()).Error()
	if err != nil {
		return fmt.Errorf("clear the buffer: %w", err)
	}
	return nil
}

// A record is an item that was taken.
type record struct {
	item    int64
	process string
}

// remains reads how the job ended.
func (s *store) remains(ctx context.Context) (r remains, err error) {
	b := s.client.B()
	answers := s.client.DoMulti(ctx, b.Hgetall().Key(bookKey).Build(),
		b.Llen().Key(itemsKey).Build(), b.Lrange().Key(takenKey).Start(0).Stop(-1).Build())
	book, err := answers[0].AsIntMap()
	if err != nil {
		return r, fmt.Errorf("read the book: %w", err)
	}
	r.fullest = book["fullest"]
	for field, n := range book {
		if strings.HasPrefix(field, "made:") {
			r.made += n
		}
	}
	if r.left, err = answers[1].AsInt64(); err != nil {
		return r, fmt.Errorf("read the buffer: %w", err)
	}
	lines, err := answers[2].AsStrSlice()
	if err != nil {
		return r, fmt.Errorf("read the taken items: %w", err)
	}
	for _, line := range lines {
		var t record
		if _, err := fmt.Sscan(line, &t.item, &t.process); err != nil {
			return r, fmt.Errorf("read the taken items, %q: %w", line, err)
		}
		r.taken = append(r.taken, t)
	}
	return r, nil
}

// stamp formats a token for the scripts.
func stamp(token uint64) string {
	return strconv.FormatUint(token, 10)
}

// count prints a number of things.
func count(n int64) string { return strconv.FormatInt(n, 10) }
