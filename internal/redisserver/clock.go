package redisserver

import (
	_ "embed"
	encoding "encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

//go:embed clock/clock.c
var clockSource []byte

// A Clock is a server's wall clock, which a test can set. It is safe for concurrent use.
type Clock struct {
	library string
	file    *os.File

	mu      sync.Mutex // guards the fields below, whose values are also in the file
	current int64
	since   time.Time
	ahead   time.Duration
	ppm     int64
}

// StartWithClock does what Start does, but the server's wall clock can be set. It needs a C compiler. Without one the test is
// skipped or fails, as it does without a server.
func StartWithClock(tb testing.TB, options ...string) *Server {
	tb.Helper()
	return begin(tb, &Server{dir: tb.TempDir(), options: options, clock: newClock(tb)})
}

// Clock returns the clock of a server that StartWithClock has started. The clock survives a restart of the server.
func (s *Server) Clock() *Clock { return s.clock }

// newClock compiles the library that changes a process's clock, and creates the file with the time that this clock shows.
func newClock(tb testing.TB) *Clock {
	tb.Helper()
	dir := tb.TempDir()
	source, path := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		tb.Fatal(err)
	}
	if out, err := exec.Command("cc", "-O2", "-shared", "-fPIC", "-o", path, source).CombinedOutput(); err != nil {
		if required, _ := strconv.ParseBool(os.Getenv(requiredVariable)); required {
			tb.Fatalf("%s is set, and a clock cannot be built: %v\n%s", requiredVariable, err, out)
		}
		tb.Skipf("no C compiler: %v", err)
	}
	file, err := os.Create(filepath.Join(dir, "clock"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = file.Close() })
	c := &Clock{library: path, file: file, since: time.Now()}
	if err := file.Truncate(4096); err != nil {
		tb.Fatal(err)
	}
	c.Step(0)
	return c
}

// environment returns the environment of a process that uses the clock.
func (c *Clock) environment() []string {
	return append(os.Environ(), "LD_PRELOAD="+c.library, "RELOCK_CLOCK="+c.file.Name())
}

// Ahead returns how far the clock is ahead of the real one.
func (c *Clock) Ahead() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.aheadLocked(time.Now())
}

func (c *Clock) aheadLocked(now time.Time) time.Duration {
	return c.ahead + now.Sub(c.since)*time.Duration(c.ppm)/1e6
}

// Step moves the clock by d. When it returns, the server has noticed.
func (c *Clock) Step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLocked(d, c.ppm)
}

// Slew makes the clock run faster than the real one by ppm millionths from now on, or slower if ppm is negative.
func (c *Clock) Slew(ppm int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLocked(0, ppm)
}

// betweenLooks is longer than Valkey 9.1 may show the old time: Valkey reads the wall clock once a millisecond, and in between
// adds the time that its monotonic clock shows.
const betweenLooks = 2 * time.Millisecond

// setLocked writes that one of the file's two settings which is not current, and then makes it the current one.
// The server maps the file into its memory. Every command that is sent after setLocked has returned sees the new time.
func (c *Clock) setLocked(step time.Duration, ppm int64) {
	now := time.Now()
	c.since, c.ahead, c.ppm = now, c.aheadLocked(now)+step, ppm
	c.current = 1 - c.current
	var b []byte
	for _, n := range []int64{now.UnixMicro(), c.ahead.Microseconds(), ppm} {
		b = encoding.NativeEndian.AppendUint64(b, uint64(n))
	}
	c.write(b, 8+24*c.current)
	c.write(encoding.NativeEndian.AppendUint64(nil, uint64(c.current)), 0)
	time.Sleep(betweenLooks)
}

func (c *Clock) write(b []byte, at int64) {
	if _, err := c.file.WriteAt(b, at); err != nil {
		panic("redisserver: a clock cannot be set: " + err.Error())
	}
}
