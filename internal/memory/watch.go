package memory

import (
	"context"
	"fmt"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/protocol"
)

var _ backend.Watcher = (*remote)(nil)

// Watch implements backend.Watcher.
func (r *remote) Watch(ctx context.Context, epoch uint64) (backend.WatchReply, error) {
	op := r.op(Watch, epoch)
	reply, err := call(ctx, r.c, op, func(now protocol.Instant) (backend.WatchReply, line) {
		reply := r.lock().Watch(now, r.c.session, epoch)
		return reply, func() string {
			return fmt.Sprintf("%s → %s", op, either(reply.Gone, "gone", either(reply.Waiting, "wanted", "watched")))
		}
	})
	return reply, wrapped(op, err)
}
