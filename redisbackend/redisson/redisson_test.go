//go:build redisson

package redisson

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/reentrant"
)

const (
	jarsVariable   = "RELOCK_REDISSON"
	workerVariable = "RELOCK_TEST_WORKER"
	limit          = time.Minute
)

// compile compiles the Java program, once for all tests.
var compile = sync.OnceValues(func() (classPath string, err error) {
	folder, err := os.MkdirTemp("", "relock-redisson-")
	if err != nil {
		return "", err
	}
	jars := filepath.Join(os.Getenv(jarsVariable), "*")
	output, err := exec.Command("javac", "-cp", jars, "-d", folder, "java/Peer.java").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("javac: %w: %s", err, output)
	}
	return folder + string(os.PathListSeparator) + jars, nil
})

func TestMain(m *testing.M) {
	if os.Getenv(workerVariable) != "" {
		work()
		return
	}
	status := m.Run()
	if classPath, err := compile(); os.Getenv(jarsVariable) != "" && err == nil {
		folder, _, _ := strings.Cut(classPath, string(os.PathListSeparator))
		_ = os.RemoveAll(folder)
	}
	os.Exit(status)
}

// A jvm is a Java process with a Redisson client.
type jvm struct {
	*testing.T
	process *exec.Cmd
	input   io.Writer
	mu      sync.Mutex
	threads map[string]chan string // the lines that each thread printed
}

// java starts a process with a client of Redisson. The client renews its leases until the process ends.
func java(t *testing.T, addr string, lease time.Duration) *jvm {
	if os.Getenv(jarsVariable) == "" {
		t.Skip("no Redisson: see doc.go")
	}
	classPath, err := compile()
	require.NoError(t, err)
	j := &jvm{T: t, threads: make(map[string]chan string)}
	j.process = exec.Command("java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", classPath, "Peer", "redis://"+addr,
		strconv.FormatInt(lease.Milliseconds(), 10))
	j.input, err = j.process.StdinPipe()
	require.NoError(t, err)
	output, err := j.process.StdoutPipe()
	require.NoError(t, err)
	log := &strings.Builder{}
	j.process.Stderr = log
	require.NoError(t, j.process.Start())
	var reading sync.WaitGroup
	reading.Go(func() { j.read(output) })
	t.Cleanup(func() {
		_ = j.process.Process.Kill()
		reading.Wait()
		_ = j.process.Wait()
		if t.Failed() {
			t.Logf("java: %s", log)
		}
	})
	j.await("main", "ready")
	return j
}

// read passes the lines of the process to the goroutines that wait for them.
func (j *jvm) read(output io.Reader) {
	for lines := bufio.NewScanner(output); lines.Scan(); {
		if thread, rest, ok := strings.Cut(lines.Text(), " "); ok {
			j.said(thread) <- rest
		}
	}
}

func (j *jvm) said(thread string) chan string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.threads[thread] == nil {
		j.threads[thread] = make(chan string, 100)
	}
	return j.threads[thread]
}

// begin makes a thread of the process execute a command.
func (j *jvm) begin(thread string, words ...any) {
	j.Helper()
	_, err := io.WriteString(j.input, thread+" "+fmt.Sprintln(words...))
	require.NoError(j, err)
}

// await waits until a thread prints the word what and a time, and returns that time.
func (j *jvm) await(thread, what string) time.Time {
	j.Helper()
	select {
	case line := <-j.said(thread):
		micros, ok := strings.CutPrefix(line, what+" ")
		require.True(j, ok, "%s: %s", what, line)
		n, err := strconv.ParseInt(micros, 10, 64)
		require.NoError(j, err)
		return time.UnixMicro(n)
	case <-time.After(2 * limit):
		require.FailNow(j, "the Java process did not reply", "%s %s", thread, what)
		return time.Time{}
	}
}

func (j *jvm) do(thread, what string, words ...any) time.Time {
	j.Helper()
	j.begin(thread, append([]any{what}, words...)...)
	return j.await(thread, what)
}

// A place is a Redis of this test alone, with a session of this process.
type place struct {
	*testing.T
	addr    string
	client  rueidis.Client
	session *reentrant.Session
}

func at(t *testing.T, addr string) *place {
	p := &place{T: t, addr: addr}
	var err error
	p.client, err = rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true})
	require.NoError(t, err)
	t.Cleanup(p.client.Close)
	b, err := redisbackend.Open(t.Context(), "redis://"+addr, redisbackend.WithRedisson())
	require.NoError(t, err)
	t.Cleanup(b.Close)
	p.session, err = reentrant.NewSession(b)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.session.Close(context.WithoutCancel(t.Context()))) })
	return p
}

// listeners waits until n connections listen to Redisson's channel of a lock.
func (p *place) listeners(lock string, n int64) {
	p.Helper()
	require.Eventually(p, func() bool {
		list, err := p.client.Do(p.Context(), p.client.B().PubsubNumsub().Channel("redisson_lock__channel:{"+lock+"}").Build()).ToArray()
		if err != nil {
			return false
		}
		got, err := list[1].AsInt64()
		return err == nil && got == n
	}, limit, time.Millisecond, "%d listeners", n)
}

// Two Java and two Go processes increment a counter under the lock. No increment is lost, so no two of the processes ever had
// the lock at the same time.
func TestIncrementsOfJavaAndGo(t *testing.T) {
	server := redisserver.Start(t)
	const each, threads = 250, 2
	peers := []*jvm{java(t, server.Addr(), limit), java(t, server.Addr(), limit)}
	var workers []*exec.Cmd
	for range 2 {
		worker := exec.Command(os.Args[0])
		worker.Env = append(os.Environ(), workerVariable+"="+server.Addr(), "RELOCK_TEST_EACH="+strconv.Itoa(each))
		worker.Stderr = os.Stderr
		require.NoError(t, worker.Start())
		workers = append(workers, worker)
	}
	for _, peer := range peers {
		for thread := range threads {
			peer.begin(strconv.Itoa(thread), "add", "lock", "counter", each)
		}
	}
	for _, worker := range workers {
		require.NoError(t, worker.Wait())
	}
	for _, peer := range peers {
		for thread := range threads {
			peer.await(strconv.Itoa(thread), "add")
		}
	}
	p := at(t, server.Addr())
	got, err := p.client.Do(t.Context(), p.client.B().Get().Key("counter").Build()).AsInt64()
	require.NoError(t, err)
	assert.EqualValues(t, 4*threads*each, got)
}

// work is what each Go process of TestIncrementsOfJavaAndGo does.
func work() {
	ctx := context.Background()
	addr := os.Getenv(workerVariable)
	each, err := strconv.Atoi(os.Getenv("RELOCK_TEST_EACH"))
	must(err)
	b, err := redisbackend.Open(ctx, "redis://"+addr, redisbackend.WithRedisson())
	must(err)
	session, err := reentrant.NewSession(b)
	must(err)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true})
	must(err)
	lock := session.NewLock("lock")
	var threads sync.WaitGroup
	for range 2 {
		threads.Go(func() {
			for range each {
				must(lock.Do(ctx, func(ctx context.Context) error {
					n, err := client.Do(ctx, client.B().Get().Key("counter").Build()).AsInt64()
					if err != nil && !rueidis.IsRedisNil(err) {
						return err
					}
					return client.Do(ctx, client.B().Set().Key("counter").Value(strconv.FormatInt(n+1, 10)).Build()).Error()
				}))
			}
		})
	}
	threads.Wait()
	must(session.Close(ctx))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// TestWakeUps measures the time from an unlock to the return of the waiter's lock, in microseconds of the machine's clock. It
// measures this within Redisson, and in both directions between Redisson and Relock. The three measurements alternate, and the
// test compares their medians. On a busy machine it tries again.
func TestWakeUps(t *testing.T) {
	server := redisserver.Start(t)
	one, two := java(t, server.Addr(), limit), java(t, server.Addr(), limit)
	p := at(t, server.Addr())
	lock := p.session.NewLock("lock")
	ctx := reentrant.WithOwner(t.Context(), "go")
	batch := func(rounds int) (own, toJava, toGo []time.Duration) {
		for range rounds {
			own = append(own, p.javaToJava(one, two))
			toJava = append(toJava, p.goToJava(ctx, lock, two))
			toGo = append(toGo, p.javaToGo(ctx, one, lock))
		}
		return own, toJava, toGo
	}
	batch(20) // Java compiles code that runs often
	require.Eventually(t, func() bool {
		own, toJava, toGo := batch(50)
		a, b, c := median(own), median(toJava), median(toGo)
		t.Logf("medians of 50: Redisson to Redisson %v; Relock to Redisson %v (%.2f), Redisson to Relock %v (%.2f)",
			a, b, ratio(b, a), c, ratio(c, a))
		return ratio(b, a) <= 2 && ratio(c, a) <= 2
	}, 5*limit, time.Millisecond, "wake-ups take at most twice as long as Redisson's own")
}

func (p *place) javaToJava(one, two *jvm) time.Duration {
	one.do("holder", "lock", "own")
	two.begin("waiter", "lock", "own")
	p.listeners("own", 1)
	freed := one.do("holder", "unlock", "own")
	got := two.await("waiter", "lock")
	two.do("waiter", "unlock", "own")
	p.listeners("own", 0)
	return got.Sub(freed)
}

func (p *place) goToJava(ctx context.Context, lock *reentrant.Lock, two *jvm) time.Duration {
	require.NoError(p, lock.Lock(ctx))
	before := p.count("lock")
	two.begin("waiter", "lock", "lock")
	p.listeners("lock", before+1)
	freed := time.Now()
	require.NoError(p, lock.Unlock(ctx))
	got := two.await("waiter", "lock")
	two.do("waiter", "unlock", "lock")
	p.listeners("lock", before)
	return got.Sub(freed.Round(0))
}

func (p *place) javaToGo(ctx context.Context, one *jvm, lock *reentrant.Lock) time.Duration {
	one.do("holder", "lock", "lock")
	got := make(chan time.Time, 1)
	go func() {
		assert.NoError(p, lock.Lock(ctx))
		got <- time.Now().Round(0)
	}()
	require.Eventually(p, func() bool {
		state, err := lock.Inspect(ctx)
		return err == nil && len(state.Waiting) == 1
	}, limit, time.Millisecond, "the waiter waits")
	p.listeners("lock", 1)
	freed := one.do("holder", "unlock", "lock")
	at := <-got
	require.NoError(p, lock.Unlock(ctx))
	return at.Sub(freed)
}

// count returns how many connections listen to Redisson's channel of a lock.
func (p *place) count(lock string) int64 {
	list, err := p.client.Do(p.Context(), p.client.B().PubsubNumsub().Channel("redisson_lock__channel:{"+lock+"}").Build()).ToArray()
	require.NoError(p, err)
	n, err := list[1].AsInt64()
	require.NoError(p, err)
	return n
}

func median(list []time.Duration) time.Duration {
	slices.Sort(list)
	return list[len(list)/2]
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

// A Java process that is killed holds the lock until its lease ends. Then a waiting Go process gets it.
func TestAJavaHolderThatIsKilled(t *testing.T) {
	server := redisserver.Start(t)
	j := java(t, server.Addr(), 6*time.Second)
	p := at(t, server.Addr())
	locked := j.do("holder", "lock", "lock")
	lock := p.session.NewLock("lock")
	got := make(chan error, 1)
	go func() { got <- lock.Lock(reentrant.WithOwner(t.Context(), "go")) }()
	p.listeners("lock", 1)
	require.NoError(t, j.process.Process.Kill())
	select {
	case err := <-got:
		require.NoError(t, err)
		assert.Greater(t, time.Since(locked), 5*time.Second, "not before the lease has ended")
	case <-time.After(limit):
		require.FailNow(t, "the lease of a process that was killed does not end")
	}
	assert.NoError(t, lock.Unlock(reentrant.WithOwner(t.Context(), "go")))
}

// Java's forceUnlock ends a Go process's hold. Verify reports this to the holder, and a waiting Go process gets the lock.
func TestJavaForcesGosLock(t *testing.T) {
	server := redisserver.Start(t)
	j := java(t, server.Addr(), limit)
	p, other := at(t, server.Addr()), at(t, server.Addr())
	ctx := reentrant.WithOwner(t.Context(), "go")
	lock := p.session.NewLock("lock")
	require.NoError(t, lock.Lock(ctx))
	got := make(chan error, 1)
	waiter := other.session.NewLock("lock")
	go func() { got <- waiter.Lock(ctx) }()
	p.listeners("lock", 1)
	j.do("main", "force", "lock")
	require.NoError(t, <-got)
	require.ErrorIs(t, lock.Verify(ctx), reentrant.ErrLost)
	assert.ErrorIs(t, lock.Unlock(ctx), reentrant.ErrLost)
	assert.NoError(t, waiter.Unlock(ctx))
}
