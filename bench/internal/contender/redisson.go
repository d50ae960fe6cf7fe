package contender

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/relock-go/relock/bench/internal/workload"
)

// redisson has Redisson's read-write lock and semaphore. Each process has a JVM, which gets the commands of the goroutines over
// a pipe. These contenders run if the environment variable names the folder with Redisson's jars and java/Peer.java's class.
var redisson = []Contender{
	{Name: "redisson-rw", About: "Redisson's RReadWriteLock, defaults, in a JVM that is driven over a pipe",
		Kind: workload.ReadWrite, Open: openRedisson, Missing: redissonMissing},
	{Name: "redisson-semaphore", About: "Redisson's RPermitExpirableSemaphore, the same way",
		Kind: workload.Permits, Open: openRedisson, Missing: redissonMissing},
}

const redissonFolder = "RELOCK_REDISSON"

func redissonMissing() string {
	if os.Getenv(redissonFolder) == "" {
		return redissonFolder + " names no folder with Redisson"
	}
	return ""
}

// A jvm is a process's JVM. Each goroutine has a thread of its own in it.
type jvm struct {
	process *exec.Cmd
	permits bool
	threads []thread
	ended   chan struct{} // closed when the JVM's output ends

	mu    sync.Mutex // guards writes to input
	input io.WriteCloser
}

// A thread of the JVM executes the commands of one goroutine.
type thread struct {
	idle    chan struct{} // has a value if no command is under way
	answers chan string
}

func openRedisson(_ context.Context, url string, w workload.Workload) (Process, error) {
	if why := redissonMissing(); why != "" {
		return nil, errors.New(why)
	}
	folder := os.Getenv(redissonFolder)
	j := &jvm{permits: w.Kind == workload.Permits, ended: make(chan struct{})}
	for range w.Goroutines {
		t := thread{idle: make(chan struct{}, 1), answers: make(chan string, 1)}
		t.idle <- struct{}{}
		j.threads = append(j.threads, t)
	}
	j.process = exec.Command("java", "-XX:TieredStopAtLevel=1", "-cp", folder+string(os.PathListSeparator)+filepath.Join(folder, "*"), "Peer",
		url, strconv.FormatInt(lease.Milliseconds(), 10), "warm-up:"+rand.Text(), strconv.Itoa(w.Permits))
	var err error
	if j.input, err = j.process.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := j.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := j.process.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		if lines.Text() == "ready" {
			go j.listen(lines)
			return j, nil
		}
	}
	_ = j.process.Wait()
	return nil, errors.New("the JVM has ended")
}

func (j *jvm) listen(lines *bufio.Scanner) {
	defer close(j.ended)
	for lines.Scan() {
		number, answer, _ := strings.Cut(lines.Text(), " ")
		if i, err := strconv.Atoi(number); err == nil && i < len(j.threads) {
			j.threads[i].answers <- answer
		}
	}
}

// Close ends the JVM by closing its input, and kills the JVM if one of its calls hangs.
func (j *jvm) Close() {
	_ = j.input.Close()
	_ = j.process.Process.Kill()
	<-j.ended
	_ = j.process.Wait()
}

func (j *jvm) Mutex(ctx context.Context, goroutine int, name string) (Mutex, error) {
	m := &jvmMutex{jvm: j, thread: j.threads[goroutine], goroutine: goroutine, name: name}
	if j.permits {
		return m, m.call(ctx, "permits", "")
	}
	return m, nil
}

// A jvmMutex is one goroutine's handle.
type jvmMutex struct {
	jvm       *jvm
	thread    thread
	goroutine int
	name      string
}

func (m *jvmMutex) Lock(ctx context.Context) error {
	if m.jvm.permits {
		return m.call(ctx, "acquire", "release")
	}
	return m.call(ctx, "lock", "unlock")
}

func (m *jvmMutex) Unlock(ctx context.Context) error {
	if m.jvm.permits {
		return m.call(ctx, "release", "")
	}
	return m.call(ctx, "unlock", "")
}

func (m *jvmMutex) RLock(ctx context.Context) error   { return m.call(ctx, "rlock", "runlock") }
func (m *jvmMutex) RUnlock(ctx context.Context) error { return m.call(ctx, "runlock", "") }

// call makes the JVM execute a command. If ctx ends first, undo reverts the command once it is done.
func (m *jvmMutex) call(ctx context.Context, command, undo string) error {
	select {
	case <-m.thread.idle:
	case <-ctx.Done():
		return ctx.Err()
	}
	m.say(command)
	select {
	case answer := <-m.thread.answers:
		m.thread.idle <- struct{}{}
		return asError(answer)
	case <-m.jvm.ended:
		return errors.New("the JVM has ended")
	case <-ctx.Done():
		go m.abandon(undo)
		return ctx.Err()
	}
}

// abandon waits for a command whose caller has left, and undoes it.
func (m *jvmMutex) abandon(undo string) {
	for range 2 {
		select {
		case answer := <-m.thread.answers:
			if answer != "ok" || undo == "" {
				m.thread.idle <- struct{}{}
				return
			}
			m.say(undo)
			undo = ""
		case <-m.jvm.ended:
			return
		}
	}
}

func (m *jvmMutex) say(command string) {
	m.jvm.mu.Lock()
	defer m.jvm.mu.Unlock()
	_, _ = fmt.Fprintf(m.jvm.input, "%d %s %s\n", m.goroutine, command, m.name) // if the JVM has ended, it has said so itself
}

func asError(answer string) error {
	if answer == "ok" {
		return nil
	}
	return errors.New(answer)
}
