package waitline

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// values returns the values of the nodes in line, in order.
func values(l *Line[int]) (all []int) {
	for w := range l.All() {
		all = append(all, *w.Value())
	}
	return all
}

// lineOf returns a line with n nodes, whose values are 0, 1, 2 …, and the nodes.
func lineOf(n int) (*Line[int], []*Node[int]) {
	var spares Spares[int]
	l := new(Line[int])
	nodes := make([]*Node[int], n)
	for i := range nodes {
		nodes[i] = spares.Take()
		*nodes[i].Value() = i
		l.Push(nodes[i])
	}
	return l, nodes
}

func TestRandomStepsAgreeWithASlice(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var (
		line   Line[int]
		spares Spares[int]
		inLine []*Node[int]
		unused []*Node[int] // the spares, the latest last
	)
	for step := range 20_000 {
		growing := step/500%2 == 0 // past all spares and back to an empty line
		switch at := random.IntN(len(inLine) + 1); {
		case len(inLine) == 0 || random.IntN(3) > 0 == growing:
			w := spares.Take()
			if n := len(unused); n > 0 {
				require.Same(t, unused[n-1], w)
				unused = unused[:n-1]
			}
			require.False(t, slices.Contains(inLine, w), "a node serves two waiters")
			require.Zero(t, *w.Value())
			*w.Value() = step
			if random.IntN(4) > 0 {
				line.Push(w)
				inLine = append(inLine, w)
			} else {
				line.PushFront(w)
				inLine = slices.Insert(inLine, 0, w)
			}
			require.False(t, w.TakeTurn(), "a node in line has no turn")
		default:
			at = min(at, len(inLine)-1)
			w := inLine[at]
			inLine = slices.Delete(inLine, at, at+1)
			line.Remove(w)
			require.True(t, w.TakeTurn(), "a node that is not in line was granted its turn")
			*w.Value() = 0
			spares.Keep(w)
			if len(unused) < MaxSpares {
				unused = append(unused, w)
			}
		}
		require.True(t, slices.Equal(inLine, slices.Collect(line.All())), "the order")
		require.Equal(t, len(inLine), line.Len)
		require.Equal(t, len(unused), spares.Len)
		check(&line, &spares)
	}
}

func TestTheNodeThatALoopIsAtMayBeRemoved(t *testing.T) {
	l, _ := lineOf(6)
	for w := range l.All() {
		if *w.Value()%2 == 0 {
			l.Remove(w)
		}
	}
	require.Equal(t, []int{1, 3, 5}, values(l))
	for w := range l.All() {
		if *w.Value() == 3 {
			break
		}
		l.Remove(w)
	}
	require.Equal(t, []int{3, 5}, values(l))
}

func TestAwaitReturnsWhyItEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, nodes := lineOf(1)
		w := nodes[0]
		done := make(chan struct{})
		close(done)
		require.Equal(t, "cancelled", Await(w, done, nil, "cancelled", "timed out"))
		require.Equal(t, "timed out", Await(w, nil, time.After(1), "cancelled", "timed out"))
		for _, done := range []chan struct{}{nil, make(chan struct{})} {
			go w.Wake()
			require.Empty(t, Await(w, done, nil, "cancelled", "timed out"))
			require.Empty(t, w.granted, "the turn was received")
		}
	})
}

func TestATurnThatComesBeforeACancellationWins(t *testing.T) {
	line, nodes := lineOf(2)
	w := nodes[0]
	line.Remove(w)
	w.Wake()
	require.True(t, w.TakeTurn())
	require.Empty(t, w.granted, "a later waiter would have the turn of this one")
	require.False(t, nodes[1].TakeTurn())
}

func TestAnOfferThatIsTakenBackIsNoTurn(t *testing.T) {
	_, nodes := lineOf(1)
	w := nodes[0]
	w.Wake()
	require.False(t, w.TakeTurn(), "it is still in line")
	w.Drain()
	require.Empty(t, w.granted)
	w.Drain()
}

// Each turn that a goroutine grants is taken by exactly one waiter, and each waiter ends with a turn or without, whatever
// comes first.
func TestEachTurnIsTakenOnceThoughWaitersLeave(t *testing.T) {
	const waiters, rounds = 8, 500
	var (
		mu                  sync.Mutex
		line                Line[int]
		spares              Spares[int]
		granted, took, left int
		ended               sync.WaitGroup
	)
	for i := range waiters {
		ended.Go(func() {
			for round := range rounds {
				mu.Lock()
				w := spares.Take()
				line.Push(w)
				check(&line, &spares)
				mu.Unlock()
				done := make(chan struct{})
				go func() {
					if (i+round)%2 == 0 {
						runtime.Gosched()
					}
					close(done)
				}()
				why := Await(w, done, nil, 1, 2)
				mu.Lock()
				turn := w.TakeTurn()
				if granted := *w.Value() == 1; turn != granted || why == 0 && !turn {
					t.Error("a turn that was not granted, or a grant that is no turn")
				}
				if turn {
					took++
				} else {
					line.Remove(w)
					left++
				}
				*w.Value() = 0
				spares.Keep(w)
				check(&line, &spares)
				mu.Unlock()
			}
		})
	}
	over := make(chan struct{})
	go func() { ended.Wait(); close(over) }()
	for running := true; running; {
		mu.Lock()
		if w := line.First; w != nil {
			line.Remove(w)
			*w.Value() = 1
			w.Wake()
			granted++
		}
		mu.Unlock()
		select {
		case <-over:
			running = false
		default:
			runtime.Gosched()
		}
	}
	require.Equal(t, granted, took)
	require.Equal(t, waiters*rounds, took+left)
	require.Zero(t, line.Len)
	require.LessOrEqual(t, spares.Len, waiters)
	t.Logf("%d turns, %d cancellations", took, left)
}
