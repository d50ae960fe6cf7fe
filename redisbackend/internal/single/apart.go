package single

import (
	"context"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// sendApart sends a script in a goroutine of its own, and waits for the reply no longer than ctx and its deadline allow. It is
// for a server that did not reply to the latest command. The client then opens another connection, and calls that come
// meanwhile wait for that connection without regard to their own contexts: each waits as long as the call that came first, and
// fails when the context of that call ends. Then the goroutine sends the script again. Remote.send also calls sendApart for a
// script that failed in this way before the connection was known to be lost. The goroutine may send the script after
// sendApart has returned: that copy comes late, as one does that was held up on its way.
func sendApart(ctx context.Context, client rueidis.Client, s *wire.Script, keys, args []string) rueidis.RedisResult {
	replied := make(chan rueidis.RedisResult, 1)
	deadline, limited := ctx.Deadline()
	go func() {
		result := s.Exec(ctx, client, keys, args)
		for limited && wire.EndedByAnother(ctx, result.NonRedisError()) {
			result = s.Exec(ctx, client, keys, args)
		}
		replied <- result
	}()
	var over <-chan time.Time
	if limited {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		over = timer.C
	}
	select {
	case result := <-replied:
		return result
	case <-over:
		return rueidis.NewErrorResult(context.DeadlineExceeded)
	case <-ctx.Done():
		return rueidis.NewErrorResult(ctx.Err())
	}
}
