package single

import (
	"context"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// A call is one run of a script.
type call struct {
	script     *wire.Script
	keys, args []string
}

// callAll runs scripts in one pipeline to each node, and sends those that a server did not know once more, in full.
func (c *Conn) callAll(ctx context.Context, calls []call) []rueidis.RedisResult {
	if len(calls) == 0 {
		return nil
	}
	first, cancel := c.half(ctx)
	results := c.pipeline(first, calls, false)
	cancel()
	c.teach(ctx, calls, results)
	return results
}

// half is the part of ctx's time that the first pipeline may take. In a Cluster it goes to many nodes, and a node that
// hangs must leave time to load the script into the others.
func (c *Conn) half(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok || !c.Deployment.cluster {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Until(deadline)/2)
}

// teach sends the scripts that a server did not know once more, in full.
func (c *Conn) teach(ctx context.Context, calls []call, results []rueidis.RedisResult) {
	var unknown []int
	var again []call
	for i, result := range results {
		if wire.ErrorCode(result.Error()) == "NOSCRIPT" {
			unknown, again = append(unknown, i), append(again, calls[i])
		}
	}
	if len(again) == 0 {
		return
	}
	for i, result := range c.pipeline(ctx, again, true) {
		results[unknown[i]] = result
	}
}

// pipeline sends one command for each call: the script's hash, or its text.
func (c *Conn) pipeline(ctx context.Context, calls []call, text bool) []rueidis.RedisResult {
	build := c.Deployment.Client.B()
	commands := make(rueidis.Commands, len(calls))
	for i, call := range calls {
		s, n := call.script, int64(len(call.keys))
		if text {
			commands[i] = build.Eval().Script(s.Text).Numkeys(n).Key(call.keys...).Arg(call.args...).Build()
		} else {
			commands[i] = build.Evalsha().Sha1(s.SHA).Numkeys(n).Key(call.keys...).Arg(call.args...).Build()
		}
	}
	return c.Deployment.Client.DoMulti(ctx, commands...)
}
