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

// Pipeline runs scripts in one pipeline to each node. If ctx has a deadline, Pipeline sends calls again that failed because
// another call's context ended (see [EndedByAnother]). It then sends the calls whose script a server did not know once more,
// with the script's whole text. It returns the results in the order of the calls.
func Pipeline(ctx context.Context, client rueidis.Client, calls []Call) []rueidis.RedisResult {
	if len(calls) == 0 {
		return nil
	}
	first, cancel := half(ctx, client.Mode() == rueidis.ClientModeCluster)
	results := sendCalls(first, client, calls, false)
	_, limited := first.Deadline()
	ended := func(r rueidis.RedisResult) bool { return EndedByAnother(first, r.NonRedisError()) }
	for limited && sendAgain(first, client, calls, results, false, ended) {
	}
	cancel()
	sendAgain(ctx, client, calls, results, true, func(r rueidis.RedisResult) bool { return ErrorCode(r.Error()) == "NOSCRIPT" })
	return results
}

// half returns the context of the first pipeline. In a Cluster the pipeline goes to many nodes, and may take half of ctx's
// time, so that a node that hangs leaves time to load the script into the others.
func half(ctx context.Context, cluster bool) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok || !cluster {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Until(deadline)/2)
}

// sendAgain sends the calls for whose results which returns true once more, and replaces these results. It reports whether
// there were any.
func sendAgain(ctx context.Context, client rueidis.Client, calls []Call, results []rueidis.RedisResult, text bool, which func(rueidis.RedisResult) bool) bool {
	var places []int
	var again []Call
	for i, result := range results {
		if which(result) {
			places, again = append(places, i), append(again, calls[i])
		}
	}
	if len(again) == 0 {
		return false
	}
	for i, result := range sendCalls(ctx, client, again, text) {
		results[places[i]] = result
	}
	return true
}

// sendCalls sends one command for each call, with the script's text if text is set, else with its hash.
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
