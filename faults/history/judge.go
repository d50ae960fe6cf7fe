package history

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// A History has the operations of one run.
type History struct {
	Ops     []Op
	Deaths  map[string]int64 // for each process that died, a time at which it was dead
	Forgets []Span           // the times in which Redis forgot
	Lease   time.Duration
	// Least is the shortest time after which a hold can end by itself, counted from the call of its acquire.
	Least time.Duration
	// Local says that processes hand locks over, and re-enter them, without asking Redis. When Redis forgets, each process may
	// then use a lock for a while that another process has too. So with Local and Forgets the judge does not search for an
	// order. It checks only the operations of each client by themselves, and the tokens, which for a lease after Redis forgot
	// must rise only within each process.
	Local bool
}

// A Span is the time between two readings of [Now] in which Redis forgot everything, or, if Partly is true, perhaps
// some of the last writes.
type Span struct {
	From, To int64
	Partly   bool
}

// A Finding is a violation.
type Finding struct {
	Lock string
	What string
}

func (f Finding) String() string { return f.Lock + ": " + f.What }

// A Verdict is the judgement of a history.
type Verdict struct {
	Holds    int // the number of holds
	Lost     int // how many of these ended by themselves with a notice to their owners
	Findings []Finding

	pictures map[string]picture // of the locks with findings
}

// A picture has the data for drawing the search for an order.
type picture struct {
	model porcupine.Model
	info  porcupine.LinearizationInfo
}

// patience limits the search for an order. The search takes well under a second for a history of some ten thousand operations,
// but can take much longer if there is no order. A search that is given up has found nothing.
const patience = 5 * time.Minute

// Judge checks a history against the model, each lock by itself.
func Judge(h History) Verdict {
	v := Verdict{pictures: make(map[string]picture)}
	byLock := opsByLock(h.Ops)
	for _, lock := range slices.Sorted(maps.Keys(byLock)) {
		v.judge(h, lock, byLock[lock])
	}
	return v
}

func opsByLock(ops []Op) map[string][]Op {
	byLock := make(map[string][]Op)
	for _, op := range ops {
		byLock[op.Lock] = append(byLock[op.Lock], op)
	}
	return byLock
}

func (v *Verdict) judge(h History, lock string, ops []Op) {
	steps, account := interpret(h, ops)
	v.Holds += account.holds
	v.Lost += account.lost
	for _, what := range append(account.findings, fallenTokens(h, ops)...) {
		v.Findings = append(v.Findings, Finding{lock, what})
	}
	if h.Local && len(h.Forgets) > 0 {
		return
	}
	v.order(lock, model, steps)
}

// order searches for an order in which the model allows the steps.
func (v *Verdict) order(lock string, m porcupine.Model, steps []porcupine.Operation) {
	result, info := porcupine.CheckOperationsVerbose(m, steps, patience)
	switch result {
	case porcupine.Illegal:
		v.Findings = append(v.Findings, Finding{lock, "a lock allows no order of these operations"})
		v.pictures[lock] = picture{m, info}
	case porcupine.Unknown:
		v.Findings = append(v.Findings, Finding{lock, fmt.Sprintf("no order was found in %v", patience)})
		v.pictures[lock] = picture{m, info}
	}
}

// Save writes a picture for each lock with findings.
func (v Verdict) Save(dir string) error {
	for lock, p := range v.pictures {
		file, err := os.Create(filepath.Join(dir, filepath.Base(lock)+".html"))
		if err != nil {
			return fmt.Errorf("history: %w", err)
		}
		err = porcupine.Visualize(p.model, p.info, file)
		if closing := file.Close(); err == nil {
			err = closing
		}
		if err != nil {
			return fmt.Errorf("history: picture of %s: %w", lock, err)
		}
	}
	return nil
}

// fallenTokens finds holds that began after another owner had its token, and whose token is not higher. The model finds these
// holds too, but here they get a description, and are found however they ended. A process that does not ask Redis may go on
// with tokens from before Redis forgot, so such tokens are compared only with those of the same process. No token may be issued
// twice, ever.
func fallenTokens(h History, ops []Op) []string {
	taken := firstHolds(ops)
	calls := slices.SortedFunc(slices.Values(taken), func(a, b Op) int { return cmp.Compare(a.Call, b.Call) })
	returns := slices.SortedFunc(slices.Values(taken), func(a, b Op) int { return cmp.Compare(a.Return, b.Return) })
	var findings []string
	var highest Op
	own := make(map[string]Op) // the highest token of each process
	for _, c := range calls {
		for len(returns) > 0 && returns[0].Return < c.Call {
			r := returns[0]
			returns = returns[1:]
			if r.Token > highest.Token {
				highest = r
			}
			if r.Token > own[r.Process].Token {
				own[r.Process] = r
			}
		}
		before := highest
		if h.Local && h.forgot(c) {
			before = own[c.Process]
		}
		if c.Token <= before.Token {
			findings = append(findings, fmt.Sprintf("token %d of %s came after token %d of %s",
				c.Token, c.Client, before.Token, before.Client))
		}
	}
	return append(findings, twins(taken)...)
}

// firstHolds returns the acquires with a new token: a re-entry keeps the token.
func firstHolds(ops []Op) []Op {
	var taken []Op
	first := make(map[string]bool)
	for _, op := range ops {
		key := fmt.Sprint(op.Client, op.Token)
		if op.Kind != Acquire && op.Kind != Await || op.Outcome != OK || op.Token == 0 || first[key] {
			continue
		}
		first[key] = true
		taken = append(taken, op)
	}
	return taken
}

// forgot reports whether Redis forgot something during op, or at most a lease before it.
func (h History) forgot(op Op) bool {
	return slices.ContainsFunc(h.Forgets, func(f Span) bool {
		return f.From <= op.Return && op.Call <= f.To+h.Lease.Nanoseconds()
	})
}

// twins finds tokens that two clients have had.
func twins(taken []Op) (findings []string) {
	had := make(map[uint64]Op)
	for _, op := range taken {
		if other, ok := had[op.Token]; ok {
			findings = append(findings, fmt.Sprintf("token %d was given to %s and to %s", op.Token, other.Client, op.Client))
		}
		had[op.Token] = op
	}
	return findings
}
