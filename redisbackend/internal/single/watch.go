package single

import (
	"context"
	"fmt"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

var _ backend.Watcher = (*Remote)(nil)

const watchWatched, watchGone = 1, 2

// Watch implements backend.Watcher.
func (r *Remote) Watch(ctx context.Context, epoch uint64) (backend.WatchReply, error) {
	if err := wire.CheckNumbers(epoch); err != nil {
		return backend.WatchReply{}, err
	}
	var d wire.ArgWriter
	d.Add(epoch)
	args := [...]string{r.Conn.Session, d.Strings()[0]}
	a, err := r.Run(ctx, &r.Conn.Deployment.scripts.Watch, r.Keys[:], args[:], 1)
	switch {
	case err != nil:
		return backend.WatchReply{}, err
	case a.Code == watchWatched:
		return backend.WatchReply{Waiting: a.rest[0] == 1}, nil
	case a.Code == watchGone:
		return backend.WatchReply{Gone: true}, nil
	}
	return backend.WatchReply{}, wire.Unexpected(fmt.Errorf("code %d", a.Code))
}
