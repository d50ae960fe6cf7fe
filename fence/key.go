package fence

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"
)

//go:embed key.lua
var keyScript string

// A Key is a hash in Redis with data and the highest token that was seen. It need not be in the Redis that has the lock,
// and is better in another: the server that forgets the lock should not forget the token too. A Redis that fails over to a
// replica, or restarts from an older file, forgets the last tokens and the last data together. The key must not expire.
type Key struct {
	client rueidis.Client
	name   string
	script *rueidis.Lua
}

var _ Resource = (*Key)(nil)

// NewKey returns the resource at a key. It sends nothing.
func NewKey(client rueidis.Client, name string) *Key {
	// Retryable: the script may run twice.
	return &Key{client: client, name: name, script: rueidis.NewLuaScriptRetryable(keyScript)}
}

// Read implements [Resource] with one script.
func (k *Key) Read(ctx context.Context, token Token) ([]byte, error) {
	data, err := k.run(ctx, token)
	return data, failed(ctx, "read", k.name, err)
}

// Write implements [Resource] with one script. A write that fails in Redis, for want of memory for example, shows no token.
func (k *Key) Write(ctx context.Context, token Token, data []byte) error {
	_, err := k.run(ctx, token, rueidis.BinaryString(data))
	return failed(ctx, "write", k.name, err)
}

// run shows a token, and then writes the data if there are any.
func (k *Key) run(ctx context.Context, token Token, data ...string) ([]byte, error) {
	if err := begin(ctx, token); err != nil {
		return nil, err
	}
	args := append([]string{strconv.FormatUint(uint64(token), 10)}, data...)
	reply, err := k.script.Exec(ctx, k.client, []string{k.name}, args).AsStrSlice()
	if err != nil {
		return nil, err
	}
	if len(reply) == 1 {
		return nil, k.stale(token, reply[0])
	}
	if len(reply) != 2 {
		return nil, fmt.Errorf("the script returned %d values", len(reply))
	}
	return []byte(reply[1]), nil
}

// stale returns the error of a token that was refused.
func (k *Key) stale(token Token, seen string) error {
	var highest Token
	if err := highest.Scan(seen); err != nil {
		return err
	}
	return compare(k.name, token, highest)
}
