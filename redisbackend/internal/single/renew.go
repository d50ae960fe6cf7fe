package single

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend/internal/clock"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// maxBatch is how many locks one script renews. Redis executes nothing else meanwhile: with 100 locks that is some 0.2
// ms. A smaller batch would cost more commands, a larger one would delay other clients longer.
const maxBatch = 100

// A batch is what one script renews: either locks or shared names; in a Cluster, of one slot.
type batch struct {
	shared   bool
	renewals []*backend.Renewal
	remotes  []*Remote // the renewals' Remotes, in the same order
}

// Renew implements backend.Conn. All batches travel in one pipeline, and each can fail by itself.
func (c *Conn) Renew(ctx context.Context, renewals []backend.Renewal) {
	c.Deployment.Verbs.Renew(ctx, c, renewals)
	c.Follow()
}

func (scripted) Renew(ctx context.Context, c *Conn, renewals []backend.Renewal) {
	batches := c.batches(renewals)
	if len(batches) == 0 {
		return
	}
	sent := time.Now()
	if err := wire.ContextErr(ctx, sent); err != nil {
		for _, b := range batches {
			b.fail(errors.Join(errors.New("redisbackend: not sent"), err))
		}
		return
	}
	calls := make([]wire.Call, len(batches))
	for i, b := range batches {
		calls[i] = c.renewal(b)
	}
	results := wire.Pipeline(ctx, c.Deployment.Client, calls)
	at := clock.SampleSince(sent)
	for i, b := range batches {
		b.read(ctx, results[i], at)
	}
	c.Follow()
}

// renewal returns the call that renews a batch.
func (c *Conn) renewal(b batch) wire.Call {
	script := &c.Deployment.scripts.Renew
	if b.shared {
		script = &c.Deployment.scripts.ShareRenew
	}
	keys, args := b.arguments(c.Session)
	return wire.Call{Script: script, Keys: keys, Args: args}
}

// batches groups renewals. Locks and shared names are in separate batches, and in a Cluster each slot has batches of its own.
// Renewals that are not valid, or of another session's locks, are left out: batches sets their Err.
func (c *Conn) batches(renewals []backend.Renewal) []batch {
	return append(c.batchesOf(renewals, false), c.batchesOf(renewals, true)...)
}

// batchesOf groups the renewals of shared names if shared is set, else those of locks.
func (c *Conn) batchesOf(renewals []backend.Renewal, shared bool) []batch {
	all := batch{shared: shared}
	for i := range renewals {
		r := &renewals[i]
		if shared != (r.Under != 0) {
			continue
		}
		r.Gone, r.First, r.Units, r.Err = false, 0, 0, nil
		own, ok := r.Remote.(*Remote)
		if !ok || own.Conn != c {
			r.Err = wire.Invalid("the lock is not one of this session")
			continue
		}
		if r.Err = wire.CheckRenewal(r); r.Err == nil {
			all.renewals, all.remotes = append(all.renewals, r), append(all.remotes, own)
		}
	}
	if !c.Deployment.cluster {
		return all.chunks(nil)
	}
	var slots []uint16
	bySlot := make(map[uint16]*batch)
	for i, r := range all.remotes {
		n := wire.Slot(r.Keys.Hold())
		b := bySlot[n]
		if b == nil {
			b = &batch{shared: shared}
			bySlot[n] = b
			slots = append(slots, n)
		}
		b.renewals, b.remotes = append(b.renewals, all.renewals[i]), append(b.remotes, r)
	}
	var batches []batch
	for _, n := range slots {
		batches = bySlot[n].chunks(batches)
	}
	return batches
}

// chunks appends the batch in parts of at most maxBatch.
func (b batch) chunks(to []batch) []batch {
	remotes := slices.Collect(slices.Chunk(b.remotes, maxBatch))
	for i, renewals := range slices.Collect(slices.Chunk(b.renewals, maxBatch)) {
		to = append(to, batch{shared: b.shared, renewals: renewals, remotes: remotes[i]})
	}
	return to
}

// arguments returns the keys and arguments of the script.
func (b batch) arguments(session string) (keys, args []string) {
	keys, args = make([]string, 0, 2*len(b.remotes)), make([]string, 0, 1+2*len(b.remotes))
	args = append(args, session)
	for i, r := range b.remotes {
		w, lease := b.renewals[i], min(b.renewals[i].Lease, wire.MaxTTL)
		var d wire.ArgWriter
		d.Add(w.Epoch)
		d.Add(wire.Millis(lease))
		if !b.shared {
			n := d.Strings()
			keys, args = append(keys, r.Keys[0], r.Keys[1]), append(args, n[0], n[1])
			continue
		}
		d.Add(uint64(w.Under))
		d.Add(wire.SharedKeepFor(lease))
		n := d.Strings()
		keys, args = append(keys, r.Keys[1]), append(args, n[0], n[2], n[1], n[3])
	}
	return keys, args
}

// read sets the result of every renewal in the batch.
func (b batch) read(ctx context.Context, result rueidis.RedisResult, at clock.Sample) {
	list, err := result.ToArray()
	if err == nil && len(list) != 1+len(b.renewals) {
		err = errors.New("wrong length")
	}
	if err != nil {
		if result.NonRedisError() != nil {
			b.remotes[0].Clock.Forget()
		}
		b.fail(wire.Fail(ctx, err))
		return
	}
	if at.Stamp, err = list[0].ToInt64(); err == nil {
		b.remotes[0].Clock.Saw(at)
	}
	for i, r := range b.renewals {
		m := list[i+1]
		if words, err := m.ToString(); err == nil {
			r.Err = wire.Judged(errors.New(words), words)
		} else if code, err := m.ToInt64(); err != nil {
			r.Err = wire.Unexpected(err)
		} else {
			r.Gone = code == 0
			if b.shared {
				r.Units = int(code)
			} else {
				r.First = backend.Token(code)
			}
		}
	}
}

func (b batch) fail(err error) {
	for _, r := range b.renewals {
		r.Err = err
	}
}
