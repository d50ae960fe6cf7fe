package deadlock

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// A record is what a session publishes for the others: its owners that wait while they hold a lock.
type record struct {
	Beat  uint64
	Waits []recorded
}

type recorded struct {
	Owner, Lock []byte
	Number      uint64 // of the wait
	Holds       [][]byte

	goroutine int64
}

// maxChain bounds how many owners a cycle over several sessions may have.
const maxChain = 16

// A chain is a path of waits: each link's owner waits for a lock that the next link's owner holds.
type chain []link

type link struct {
	blocked   Link
	goroutine int64 // the goroutine that waits; 0 if the owner is another session's
	wait      uint64
	beat      uint64 // of its session's record; 0 for this session
}

// same reports whether chain c consists of the same waits as chain before.
func (c chain) same(before chain) bool {
	return slices.EqualFunc(c, before, func(now, then link) bool {
		return now.blocked == then.blocked && now.wait == then.wait
	})
}

// renewed reports whether every other session of the chain has renewed its record since the earlier sighting in before.
func (c chain) renewed(before chain) bool {
	return slices.EqualFunc(c, before, func(now, then link) bool { return now.beat == 0 || now.beat > then.beat })
}

// victim returns the link whose wait is ended. All sessions choose the same one.
func (c chain) victim() Link {
	return slices.MaxFunc(c, func(a, b link) int {
		return strings.Compare(a.blocked.Session+":"+a.blocked.Owner, b.blocked.Session+":"+b.blocked.Owner)
	}).blocked
}

func (d *Detector[O]) run() {
	ticker := time.NewTicker(d.heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			d.look()
		case <-d.quit:
			return
		}
	}
}

// look runs once per heartbeat: it renews the record, and follows the wait of each owner in it.
func (d *Detector[O]) look() {
	own, waits := d.own()
	if len(own.Waits) == 0 && !d.registered {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), d.timeout)
	defer cancel()
	if !d.register(ctx, own) {
		return
	}
	suspect := make(map[uint64]chain)
	v := view{records: map[string]record{d.s.ID(): own}, holders: make(map[string]holder)}
	for w, owner := range waits {
		c, before := d.follow(ctx, owner, w, &v), d.suspect[w.id]
		switch {
		case len(c) == 0:
		case !c.same(before):
			suspect[w.id] = c
		case !c.renewed(before): // keep the older sighting: sessions do not renew their records at the same moment
			suspect[w.id] = before
		case c.victim().Session == d.s.ID() && c.victim().Owner == owner.String():
			w.end(c.cycle())
		}
	}
	d.suspect = suspect
}

// own returns this session's record, and the waits in it.
func (d *Detector[O]) own() (record, map[*Wait]O) {
	held := d.s.Held()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.beat++
	r := record{Beat: d.beat}
	waits := make(map[*Wait]O)
	for owner, list := range d.waits {
		for _, w := range list {
			if w.beats++; w.beats > 1 && len(held[owner]) > 0 {
				waits[w] = owner
				r.Waits = append(r.Waits, recorded{[]byte(owner.String()), []byte(w.lock), w.id, held[owner], w.goroutine})
			}
		}
	}
	return r, waits
}

// register publishes the record, or removes it when it has become empty. It reports whether that succeeded.
func (d *Detector[O]) register(ctx context.Context, own record) bool {
	text := ""
	if len(own.Waits) > 0 {
		data, _ := json.Marshal(own) // of strings and numbers: it cannot fail
		text = string(data)
	}
	err := d.s.Register(ctx, text)
	d.registered = text != "" || err != nil
	return err == nil
}

// A view caches what a session has read at one heartbeat: each lock and each record once.
type view struct {
	records map[string]record
	holders map[string]holder
	seen    map[string]bool // locks that do not lead back to the first wait
}

// A holder is a lock's holder: its session, and the recorded waits of owners that have the lock.
type holder struct {
	session string
	waits   []recorded
}

// follow returns the cycle that a wait is part of, nil if there is none.
func (d *Detector[O]) follow(ctx context.Context, owner O, w *Wait, v *view) chain {
	v.seen = make(map[string]bool)
	first := link{blocked: Link{Session: d.s.ID(), Owner: owner.String(), Lock: w.lock}, wait: w.id, goroutine: w.goroutine}
	return d.extend(ctx, chain{first}, v)
}

// extend returns the cycle that begins with c, nil if there is none.
func (d *Detector[O]) extend(ctx context.Context, c chain, v *view) chain {
	lock := c[len(c)-1].blocked.Lock
	if len(c) > maxChain || v.seen[lock] {
		return nil
	}
	v.seen[lock] = true
	h := d.holder(ctx, lock, v)
	for _, r := range h.waits {
		b := Link{Session: h.session, Owner: string(r.Owner), Lock: string(r.Lock)}
		if b == c[0].blocked {
			return c
		}
		next := link{blocked: b, wait: r.Number, beat: v.records[h.session].Beat}
		if h.session == d.s.ID() {
			next.beat, next.goroutine = 0, r.goroutine
		}
		if cycle := d.extend(ctx, append(c, next), v); cycle != nil {
			return cycle
		}
	}
	return nil
}

// holder returns the holder of a lock, as far as it is recorded.
func (d *Detector[O]) holder(ctx context.Context, lock string, v *view) holder {
	h, known := v.holders[lock]
	if !known {
		h = d.ask(ctx, lock, v)
		v.holders[lock] = h
	}
	return h
}

// ask reads the holder of a lock from Redis.
func (d *Detector[O]) ask(ctx context.Context, lock string, v *view) (h holder) {
	st, err := d.s.Inspect(ctx, lock)
	if err != nil || !st.Locked {
		return h
	}
	r, known := v.records[st.Session]
	if !known {
		text, err := d.s.Registered(ctx, st.Session)
		if err != nil || text == "" || json.Unmarshal([]byte(text), &r) != nil {
			return h
		}
		v.records[st.Session] = r
	}
	// Redis does not know which owner of a cohort has the lock; its session does.
	h.session = st.Session
	for _, w := range r.Waits {
		if slices.ContainsFunc(w.Holds, func(name []byte) bool { return string(name) == lock }) {
			h.waits = append(h.waits, w)
		}
	}
	return h
}
