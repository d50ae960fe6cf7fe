package quorum

import (
	"context"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

var _ backend.Watcher = (*remote)(nil)

// Watch implements backend.Watcher. Each node that has the mark sends the holder a message for each session that
// reports that it waits (quorum_want.lua), so one node of a majority is enough. Where a hold is put back, it has
// no mark.
func (r *remote) Watch(ctx context.Context, epoch uint64) (backend.WatchReply, error) {
	if err := r.conn.begin(ctx); err != nil {
		return backend.WatchReply{}, err
	}
	defer r.conn.Jobs.Done()
	q := r.conn.quorum
	marked := func(a backend.WatchReply) bool { return !a.Gone }
	got := ask(ctx, r.conn, q.budget(ctx, time.Time{}), func(ctx context.Context, i int) (backend.WatchReply, error) {
		return r.replicas[i].watch(ctx, epoch)
	}, majority(q, marked))
	has, gone := count(got, marked)
	switch {
	case has >= q.need:
		waits, _ := count(got, func(a backend.WatchReply) bool { return a.Waiting })
		return backend.WatchReply{Waiting: waits > 0}, nil
	case gone >= q.blocks():
		return backend.WatchReply{Gone: true}, nil
	}
	return backend.WatchReply{}, q.tooFew(ctx, failures(got, len(r.replicas)))
}

// watch marks the hold at the node, and then reads which session already waits.
func (rep *replica) watch(ctx context.Context, epoch uint64) (backend.WatchReply, error) {
	reply, err := rep.remote.Watch(ctx, epoch)
	if err != nil || reply.Gone {
		return reply, err
	}
	session, err := rep.readWanted(ctx)
	if err != nil {
		return reply, wire.Fail(ctx, err)
	}
	reply.Waiting = session != "" && session != rep.remote.Conn.Session
	return reply, nil
}
