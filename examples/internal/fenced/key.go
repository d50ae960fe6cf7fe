package fenced

import (
	"context"
	_ "embed"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/reentrant"
)

//go:embed key.lua
var keyScript string

// A Key is a hash in Redis with the text and the highest token. It need not be the Redis that has the lock, and should
// better be another: the server that forgets the lock should not forget the token too.
type Key struct {
	client rueidis.Client
	key    string
	script *rueidis.Lua
}

var _ Resource = (*Key)(nil)

// NewKey returns the resource with a key. A missing key is an empty text. NewKey sends nothing.
func NewKey(client rueidis.Client, key string) *Key {
	// Retryable: the script may run twice.
	return &Key{client: client, key: key, script: rueidis.NewLuaScriptRetryable(keyScript)}
}

// Read checks the token and reads the text in one script.
func (k *Key) Read(ctx context.Context, token reentrant.Token) (string, error) {
	text, err := k.run(ctx, token)
	return text, failed("read", k.key, token, err)
}

// Write checks the token and sets the text in one script.
func (k *Key) Write(ctx context.Context, token reentrant.Token, text string) error {
	_, err := k.run(ctx, token, text)
	return failed("write", k.key, token, err)
}

func (k *Key) run(ctx context.Context, token reentrant.Token, text ...string) (string, error) {
	args := append([]string{strconv.FormatUint(uint64(token), 10)}, text...)
	reply, err := k.script.Exec(ctx, k.client, []string{k.key}, args).ToArray()
	if err != nil {
		return "", err
	}
	if len(reply) == 0 {
		return "", ErrOldToken
	}
	return reply[0].ToString()
}
