package single

import (
	"context"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// sendApart sends a script in a goroutine of its own, and waits for the reply no longer than ctx and its deadline allow. It is for
// a server that did not reply to the latest command. Then the client opens another connection, and calls that come meanwhile wait
// for that without regard to their contexts: each would last as long as the one that came first, and fail when that one's context
// ends. So the goroutine tries again then; and so does a script that waited before it was known that the connection is gone. The
// goroutine may send the script after sendApart has returned: such a copy comes late, like any that was held up on its way.
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
