package wire

import (
	"context"
	"time"

	"github.com/redis/rueidis"
)

// A Call is one run of a script.
type Call struct {
	Script     *Script
	Keys, Args []string
}

// Pipeline runs scripts in one pipeline to each node, and sends those that a server did not know once more, in full. It
// returns the results in the order of the calls.
func Pipeline(ctx context.Context, client rueidis.Client, calls []Call) []rueidis.RedisResult {
	if len(calls) == 0 {
		return nil
	}
	first, cancel := half(ctx, client.Mode() == rueidis.ClientModeCluster)
	results := sendCalls(first, client, calls, false)
	cancel()
	teach(ctx, client, calls, results)
	return results
}

// half is the part of ctx's time that the first pipeline may take. In a Cluster it goes to many nodes, and a node that
// hangs must leave time to load the script into the others.
func half(ctx context.Context, cluster bool) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok || !cluster {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Until(deadline)/2)
}

// teach sends the scripts that a server did not know once more, in full.
func teach(ctx context.Context, client rueidis.Client, calls []Call, results []rueidis.RedisResult) {
	var unknown []int
	var again []Call
	for i, result := range results {
		if ErrorCode(result.Error()) == "NOSCRIPT" {
			unknown, again = append(unknown, i), append(again, calls[i])
		}
	}
	if len(again) == 0 {
		return
	}
	for i, result := range sendCalls(ctx, client, again, true) {
		results[unknown[i]] = result
	}
}

// sendCalls sends one command for each call: the script's hash, or its text.
func sendCalls(ctx context.Context, client rueidis.Client, calls []Call, text bool) []rueidis.RedisResult {
	build := client.B()
	commands := make(rueidis.Commands, len(calls))
	for i, call := range calls {
		s, n := call.Script, int64(len(call.Keys))
		if text {
			commands[i] = build.Eval().Script(s.Text).Numkeys(n).Key(call.Keys...).Arg(call.Args...).Build()
		} else {
			commands[i] = build.Evalsha().Sha1(s.SHA).Numkeys(n).Key(call.Keys...).Arg(call.Args...).Build()
		}
	}
	return client.DoMulti(ctx, commands...)
}
