package history

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// In these histories a lease is 100, and a hold can end by itself 50 after the call of its acquire.
const lease, least = 100, 50

// The functions took to did make operations of a client. The client's name is also the name of its process.
func took(client string, call, ret int64, token uint64) Op {
	return Op{Client: client, Process: client, Kind: Acquire, Call: call, Return: ret, Outcome: OK, Token: token}
}

func gave(client string, call, ret int64) Op { return did(client, Unlock, call, ret, OK) }

func awaited(client string, call, ret int64, outcome Outcome, token uint64) Op {
	op := did(client, Await, call, ret, outcome)
	op.Token = token
	return op
}

func did(client string, kind Kind, call, ret int64, outcome Outcome) Op {
	return Op{Client: client, Process: client, Kind: kind, Call: call, Return: ret, Outcome: outcome}
}

func TestJudge(t *testing.T) {
	flush := []Span{{From: 20, To: 25}}
	failover := []Span{{From: 20, To: 25, Partly: true}}
	dead := func(at int64) map[string]int64 { return map[string]int64{"a": at} }
	for name, test := range map[string]struct {
		ops     []Op
		deaths  map[string]int64
		forgets []Span
		want    string // a part of the expected finding; "" if the history is legal
	}{
		"one after the other": {ops: []Op{took("a", 1, 2, 10), gave("a", 3, 4), took("b", 5, 6, 11), gave("b", 7, 8)}},
		"a waiter's acquire is called early": {ops: []Op{
			took("a", 1, 2, 10), took("b", 1, 6, 11), gave("a", 3, 5), gave("b", 7, 8)}},
		"nesting": {ops: []Op{
			took("a", 1, 2, 10), took("a", 3, 4, 10), gave("a", 5, 6), gave("a", 7, 8), took("b", 9, 10, 11), gave("b", 11, 12)}},
		"two at once": {want: "no order", ops: []Op{
			took("a", 1, 2, 10), took("b", 3, 4, 11), gave("a", 5, 6), gave("b", 7, 8)}},
		"one Unlock frees two holds": {want: "no order", ops: []Op{
			took("a", 1, 2, 10), took("a", 3, 4, 10), gave("a", 5, 6), took("b", 7, 8, 11), gave("b", 9, 10), gave("a", 11, 12)}},
		"a token twice":       {want: "token 10 of b", ops: []Op{took("a", 1, 2, 10), gave("a", 3, 4), took("b", 5, 6, 10), gave("b", 7, 8)}},
		"a token falls":       {want: "token 9 of b", ops: []Op{took("a", 1, 2, 10), gave("a", 3, 4), took("b", 5, 6, 9), gave("b", 7, 8)}},
		"its own token twice": {want: "no order", ops: []Op{took("a", 1, 2, 10), gave("a", 3, 4), took("a", 5, 6, 10), gave("a", 7, 8)}},
		"re-entry with a new token": {want: "for no reason", ops: []Op{
			took("a", 1, 2, 10), took("a", 3, 4, 11), gave("a", 5, 6), gave("a", 7, 8)}},
		"an Unlock too many": {want: "Unlock returned", ops: []Op{took("a", 1, 2, 10), gave("a", 3, 4), gave("a", 5, 6)}},
		"an Unlock too many is refused": {ops: []Op{
			took("a", 1, 2, 10), gave("a", 3, 4), did("a", Unlock, 5, 6, NotHeld)}},
		"a holder's Unlock is refused":           {want: "Unlock returned", ops: []Op{took("a", 1, 2, 10), did("a", Unlock, 3, 4, NotHeld)}},
		"the lock is never released":             {want: "with the lock held", ops: []Op{took("a", 1, 2, 10)}},
		"a hold is reported that does not exist": {want: "reports a hold that does not exist", ops: []Op{did("a", Look, 1, 2, OK)}},
		"a hold that exists is not reported":     {want: "never was a hold", ops: []Op{took("a", 1, 2, 10), did("a", Verify, 3, 4, NotHeld), gave("a", 5, 6)}},
		"an acquire that failed":                 {ops: []Op{took("a", 1, 2, 10), did("b", Acquire, 3, 4, No), gave("a", 5, 6)}},
		"an acquire without a reply":             {ops: []Op{did("b", Acquire, 1, 0, Pending), took("a", 1, 2, 10), gave("a", 5, 6)}},
		"a token that is not known":              {ops: []Op{took("a", 1, 2, 0), gave("a", 3, 4), took("b", 5, 6, 11), gave("b", 7, 8)}},
		"two at once, one token hidden":          {want: "no order", ops: []Op{took("a", 1, 2, 0), took("b", 3, 4, 11), gave("a", 5, 6), gave("b", 7, 8)}},

		// Leases end.
		"taken after the lease has ended, and the loss reported": {ops: []Op{
			took("a", 1, 2, 10), took("b", 60, 61, 11), did("a", Unlock, 70, 71, Lost), gave("b", 80, 81)}},
		"taken before the lease can have ended": {want: "no order", ops: []Op{
			took("a", 1, 2, 10), took("b", 40, 41, 11), did("a", Unlock, 70, 71, Lost), gave("b", 80, 81)}},
		"taken, and the loss not reported": {want: "no order", ops: []Op{
			took("a", 1, 2, 10), took("b", 60, 61, 11), gave("a", 70, 71), gave("b", 80, 81)}},
		"taken while its owner was still shown the hold": {want: "no order", ops: []Op{
			took("a", 1, 2, 10), took("b", 60, 61, 11), did("a", Look, 65, 66, OK), did("a", Unlock, 70, 71, Lost), gave("b", 80, 81)}},
		"the hold shown, then taken, then the loss reported": {ops: []Op{
			took("a", 1, 2, 10), did("a", Look, 58, 59, OK), took("b", 60, 61, 11), did("a", Look, 70, 71, Lost),
			did("a", Unlock, 72, 73, Lost), gave("b", 80, 81)}},
		"an Unlock of a lost hold ends that of the next owner": {want: "no order", ops: []Op{
			took("a", 1, 2, 10), took("b", 60, 61, 11), did("a", Unlock, 70, 71, Lost), took("c", 72, 73, 12), gave("b", 80, 81), gave("c", 82, 83)}},
		"a loss reported for no reason": {want: "for no reason", ops: []Op{took("a", 1, 2, 10), did("a", Unlock, 20, 21, Lost)}},
		"a loss reported to each of its Unlocks": {ops: []Op{
			took("a", 1, 2, 10), took("a", 3, 4, 10), did("a", Verify, 60, 61, Lost), did("a", Unlock, 62, 63, Lost), did("a", Unlock, 64, 65, Lost)}},
		"a lost hold comes back": {want: "Unlock returned", ops: []Op{
			took("a", 1, 2, 10), did("a", Look, 60, 61, Lost), gave("a", 62, 63)}},
		"lost unnoticed, and acquired again": {ops: []Op{
			took("a", 1, 2, 10), took("a", 60, 61, 12), gave("a", 62, 63), did("a", Unlock, 64, 65, Lost)}},

		"lost before its token was read, and acquired again": {ops: []Op{
			took("a", 1, 2, 0), took("b", 60, 61, 11), gave("b", 62, 63), did("a", Look, 70, 71, Lost),
			took("a", 72, 73, 12), gave("a", 74, 75), did("a", Unlock, 76, 77, Lost)}},

		// Waits for conditions.
		"a wait in which another owner has the lock": {ops: []Op{
			took("a", 1, 2, 10), awaited("a", 3, 20, OK, 12), took("b", 4, 5, 11), gave("b", 6, 7), gave("a", 21, 22)}},
		"a wait, and another owner beside it": {want: "no order", ops: []Op{
			took("a", 1, 2, 10), awaited("a", 3, 8, OK, 11), took("b", 9, 10, 12), gave("b", 11, 12), gave("a", 21, 22)}},
		"a lock that is taken before the wait": {want: "no order", ops: []Op{
			took("a", 1, 2, 10), took("b", 3, 4, 11), awaited("a", 5, 20, OK, 12), gave("b", 6, 7), gave("a", 21, 22)}},
		"a wait after which the token falls": {want: "token 9 of a", ops: []Op{took("a", 1, 2, 10), awaited("a", 3, 20, OK, 9), gave("a", 21, 22)}},
		"a wait from which nothing comes back": {ops: []Op{
			took("a", 1, 2, 10), awaited("a", 3, 20, Lost, 0), took("b", 4, 5, 11), gave("b", 6, 7), did("a", Unlock, 21, 22, Lost)}},
		"a wait that did not begin": {ops: []Op{took("a", 1, 2, 10), awaited("a", 3, 20, No, 0), gave("a", 21, 22)}},
		"a wait without a hold":     {want: "without a hold", ops: []Op{awaited("a", 3, 20, OK, 10), gave("a", 21, 22)}},
		"a dead process waited": {deaths: dead(10), ops: []Op{
			took("a", 1, 2, 10), awaited("a", 3, 0, Pending, 0), took("b", 4, 5, 11), gave("b", 6, 7)}},
		"a loss without a notice": {want: "not notified", ops: []Op{took("a", 1, 2, 10), did("a", Look, 60, 61, Untold), gave("a", 70, 71)}},

		// Outcomes that are not known.
		"an Unlock of unknown outcome":  {ops: []Op{took("a", 1, 2, 10), did("a", Unlock, 3, 9, Unknown), took("b", 4, 5, 11), gave("b", 6, 7)}},
		"not before that Unlock":        {want: "no order", ops: []Op{took("a", 1, 2, 10), took("b", 3, 4, 11), did("a", Unlock, 5, 9, Unknown), gave("b", 6, 7)}},
		"another Unlock after that one": {want: "Unlock returned", ops: []Op{took("a", 1, 2, 10), did("a", Unlock, 3, 4, Unknown), gave("a", 5, 6)}},
		"a partial Unlock of unknown outcome": {ops: []Op{
			took("a", 1, 2, 10), took("a", 3, 4, 10), did("a", Unlock, 5, 6, Unknown), gave("a", 7, 8), took("b", 9, 10, 11), gave("b", 11, 12)}},

		// Processes die.
		"the lease of a dead process ends":                     {deaths: dead(10), ops: []Op{took("a", 1, 2, 10), took("b", 3, 60, 11), gave("b", 61, 62)}},
		"the lease of a dead process ends too early":           {deaths: dead(10), want: "no order", ops: []Op{took("a", 1, 2, 10), took("b", 3, 40, 11), gave("b", 61, 62)}},
		"the Unlock of a dead process was executed":            {deaths: dead(10), ops: []Op{took("a", 1, 2, 10), did("a", Unlock, 9, 0, Pending), took("b", 3, 11, 11), gave("b", 12, 13)}},
		"the lock taken before the dead process called Unlock": {deaths: dead(10), want: "no order", ops: []Op{took("a", 1, 2, 10), took("b", 3, 5, 11), gave("b", 6, 7), did("a", Unlock, 9, 0, Pending)}},
		"a partial Unlock of a dead process":                   {deaths: dead(10), want: "no order", ops: []Op{took("a", 1, 2, 10), took("a", 3, 4, 10), did("a", Unlock, 9, 0, Pending), took("b", 3, 11, 11), gave("b", 12, 13)}},
		"the token of a dead process stays the highest":        {deaths: dead(10), want: "token 9 of b", ops: []Op{took("a", 1, 2, 10), took("b", 60, 61, 9), gave("b", 62, 63)}},

		// Redis forgets.
		"forgotten, and given to another owner": {forgets: flush, ops: []Op{
			took("a", 1, 2, 10), took("b", 26, 27, 11), did("a", Look, 30, 31, OK), gave("a", 40, 41), gave("b", 50, 51)}},
		"forgotten, and the loss reported": {forgets: flush, ops: []Op{
			took("a", 1, 2, 10), took("b", 26, 27, 11), did("a", Verify, 30, 31, Lost), did("a", Unlock, 40, 41, Lost), gave("b", 50, 51)}},
		"given to another owner before Redis forgot": {forgets: flush, want: "no order", ops: []Op{
			took("a", 1, 2, 10), took("b", 3, 19, 11), gave("a", 40, 41), gave("b", 50, 51)}},
		"forgotten, and trusted for too long": {forgets: flush, want: "no order", ops: []Op{
			took("a", 1, 2, 10), took("b", 26, 27, 11), gave("a", 126, 127), gave("b", 128, 129)}},
		"forgotten, and verified": {forgets: flush, want: "no order", ops: []Op{
			took("a", 1, 2, 10), took("b", 26, 27, 11), did("a", Verify, 30, 31, OK), gave("a", 40, 41), gave("b", 50, 51)}},
		"forgotten, and re-entered": {forgets: flush, want: "no order", ops: []Op{
			took("a", 1, 2, 10), took("b", 26, 27, 11), took("a", 30, 31, 10), gave("a", 40, 41), gave("a", 42, 43), gave("b", 50, 51)}},
		"forgotten, and the next holder's lock taken": {forgets: flush, want: "no order", ops: []Op{
			took("a", 1, 2, 10), took("b", 26, 27, 11), gave("a", 40, 41), took("c", 42, 43, 12), gave("b", 50, 51), gave("c", 52, 53)}},
		"forgotten, and the token falls": {forgets: flush, want: "token 9 of b", ops: []Op{
			took("a", 1, 2, 10), gave("a", 3, 4), took("b", 26, 27, 9), gave("b", 30, 31)}},
		"not forgotten, and kept": {forgets: failover, ops: []Op{
			took("a", 1, 2, 10), did("a", Verify, 30, 31, OK), gave("a", 200, 201), took("b", 202, 203, 11), gave("b", 204, 205)}},
		"perhaps forgotten, and given to another": {forgets: failover, ops: []Op{
			took("a", 1, 2, 10), took("b", 26, 27, 11), did("a", Look, 30, 31, OK), gave("a", 40, 41), gave("b", 50, 51)}},
		"not forgotten, but its renewal was": {forgets: failover, ops: []Op{
			took("a", 1, 2, 10), did("a", Verify, 26, 27, OK), took("b", 28, 29, 11), gave("a", 40, 41), gave("b", 50, 51)}},
		"not forgotten after a lease, and given to another owner": {forgets: failover, want: "no order", ops: []Op{
			took("a", 1, 2, 10), did("a", Verify, 130, 131, OK), took("b", 132, 133, 11), gave("a", 140, 141), gave("b", 150, 151)}},
		"not forgotten and re-entered, and given to another owner": {forgets: failover, want: "no order", ops: []Op{
			took("a", 1, 2, 10), took("a", 26, 27, 10), took("b", 28, 29, 11), gave("a", 40, 41), gave("a", 42, 43), gave("b", 50, 51)}},
		"perhaps forgotten, given to another owner, and verified": {forgets: failover, want: "no order", ops: []Op{
			took("a", 1, 2, 10), took("b", 26, 27, 11), did("a", Verify, 30, 31, OK), gave("a", 40, 41), gave("b", 50, 51)}},
		"perhaps forgotten, and trusted for too long": {forgets: failover, want: "no order", ops: []Op{
			took("a", 1, 2, 10), took("b", 26, 27, 11), gave("a", 126, 127), gave("b", 128, 129)}},
		"perhaps forgotten, and given to two other owners": {forgets: failover, want: "no order", ops: []Op{
			took("a", 1, 2, 10), took("b", 26, 27, 11), took("c", 28, 29, 12), gave("a", 40, 41), gave("b", 50, 51), gave("c", 52, 53)}},
		"acquired after Redis forgot, and taken by another owner": {forgets: flush, want: "no order", ops: []Op{
			took("a", 26, 27, 10), took("b", 30, 31, 11), gave("a", 40, 41), gave("b", 50, 51)}},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range test.ops {
				test.ops[i].Lock = "lock"
			}
			v := Judge(History{Ops: test.ops, Deaths: test.deaths, Forgets: test.forgets, Lease: lease, Least: least})
			var found []string
			for _, f := range v.Findings {
				found = append(found, f.String())
			}
			if test.want == "" {
				assert.Empty(t, found)
				return
			}
			assert.Contains(t, strings.Join(found, "\n"), test.want)
		})
	}
}

func TestLocksAreJudgedEachForItself(t *testing.T) {
	a, b := took("a", 1, 2, 10), took("b", 1, 2, 10)
	a.Lock, b.Lock = "one", "two"
	freeA, freeB := gave("a", 3, 4), gave("b", 3, 4)
	freeA.Lock, freeB.Lock = "one", "two"
	v := Judge(History{Ops: []Op{a, b, freeA, freeB}, Lease: lease, Least: least})
	assert.Empty(t, v.Findings)
	assert.Equal(t, 2, v.Holds)
}

func TestProcessesThatDoNotAskGoOnWhenRedisForgets(t *testing.T) {
	ops := []Op{
		took("a", 1, 2, 10), gave("a", 26, 27), took("a", 28, 29, 11), took("b", 30, 31, 12), gave("a", 32, 33), gave("b", 34, 35),
	}
	h := History{Ops: ops, Forgets: []Span{{From: 20, To: 25}}, Lease: lease, Least: least, Local: true}
	assert.Empty(t, Judge(h).Findings)
	told := History{Ops: append(ops[:3:3], did("a", Unlock, 30, 31, Lost)), Forgets: h.Forgets, Lease: lease, Least: least, Local: true}
	assert.Empty(t, Judge(told).Findings, "a lock that was handed over is lost when Redis is asked")
	h.Ops[3].Token = 11
	assert.NotEmpty(t, Judge(h).Findings, "a token that is given twice")
	h.Ops[3].Token = 9
	assert.Empty(t, Judge(h).Findings, "a process that goes on with a block from before")
	h.Ops[2].Token = 8
	assert.NotEmpty(t, Judge(h).Findings, "the process's own tokens must rise all the same")
	h.Ops[2].Token = 11
	h.Lease = 1
	assert.NotEmpty(t, Judge(h).Findings, "the process learns of the loss within a lease")
	h.Lease = lease
	h.Forgets = nil
	h.Ops[3].Token = 12
	assert.NotEmpty(t, Judge(h).Findings, "if Redis does not forget, holds come one after the other")
}

func TestAPictureOfWhatIsWrong(t *testing.T) {
	ops := []Op{took("a", 1, 2, 10), took("b", 3, 4, 11), gave("a", 5, 6), gave("b", 7, 8)}
	dir := t.TempDir()
	require.NoError(t, Judge(History{Ops: ops, Lease: lease, Least: least}).Save(dir))
	files, err := filepath.Glob(filepath.Join(dir, "*.html"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	page, err := os.ReadFile(files[0])
	require.NoError(t, err)
	assert.Contains(t, string(page), "a take hold 1, token 10")
}

func TestLogsAreReadBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	log, err := NewLog(path)
	require.NoError(t, err)
	pending := Op{Process: "p", Client: "p/2", Lock: "lock", Kind: Acquire, Call: 3}
	done := took("p/1", 1, 4, 10)
	begun := done
	begun.Return, begun.Outcome, begun.Token = 0, Pending, 0
	for _, op := range []Op{begun, pending, done} {
		require.NoError(t, log.Write(op))
	}
	_, err = log.file.WriteString(`{"client":"p/1","lock":"lo`) // the file ends where a SIGKILL ended the process
	require.NoError(t, err)
	require.NoError(t, log.Close())
	ops, err := Read(path)
	require.NoError(t, err)
	assert.Equal(t, []Op{done, pending}, ops)
}

func TestTheClockDoesNotFall(t *testing.T) {
	assert.LessOrEqual(t, Now(), Now())
}
