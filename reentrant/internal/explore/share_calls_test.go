package explore

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/testsize"
)

// A shareCaller is a session that sends what it likes: no plan decides.
type shareCaller struct {
	epoch uint64
	last  shareCall
}

// TestShareCallsAtRandom compares the scripts with package protocol where many sessions wait, most of which send heartbeats.
func TestShareCallsAtRandom(t *testing.T) {
	seed := seed()
	t.Logf("RELOCK_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s := newShareStore(t)
	for range testsize.Of(400, 15) {
		kind := backend.ShareKind(1 + random.IntN(2))
		m, now, callers, lines := s.intern(nil, 0), tick(0), [5]shareCaller{}, []string(nil)
		for range 60 {
			now += tick(random.IntN(20) / 18)
			n := random.IntN(len(callers))
			m = s.pass(m, now)
			c := callers[n].next(random, kind, n, m, now)
			res := s.exec(m, now, c)
			lines = append(lines, fmt.Sprintf("%d %+v\n  %v", now, c, res.after))
			if res.bad != "" {
				t.Fatalf("%s\n✗ %s", strings.Join(lines, "\n"), res.bad)
			}
			m = res.after
		}
	}
}

// next returns the next call: mostly the last one again.
func (c *shareCaller) next(random *rand.Rand, kind backend.ShareKind, n int, m *sharedMemory, now tick) shareCall {
	if c.epoch > 0 && random.IntN(4) > 0 {
		again := c.last
		again.notAfter, again.memory = now+1, now+1
		if random.IntN(16) == 0 && now > 0 {
			again.notAfter = now - 1 // it is late
		}
		return again
	}
	c.epoch++
	req := backend.ShareRequest{Kind: kind, Epoch: c.epoch, Limit: backend.AllUnits, Tokens: 2, Lease: 4 * second, GrantTTL: second,
		Patience: 2 * second, Try: random.IntN(8) == 0}
	has := 0
	for _, e := range m.shared.Entries {
		if e.Session == sessionName(uint8(n)) {
			has, req.Under, req.Answer = e.Units, e.Under, e.Asked
		}
	}
	most := []int{1, backend.AllUnits}[random.IntN(2)]
	if kind == backend.Permits {
		req.Limit, most = 2+random.IntN(4), 1+random.IntN(3)
	}
	if random.IntN(2) > 0 {
		req.Keep = has
	}
	if req.Want = max(req.Keep, most); random.IntN(4) == 0 {
		req.Want = req.Keep
	}
	req.Least = req.Want
	if req.Want > req.Keep+1 && kind == backend.Permits {
		req.Least = req.Keep + 1
	}
	c.last = shareCall{session: n, req: req, notAfter: now + 1, memory: now + 1 + tick(random.IntN(2))}
	return c.last
}
