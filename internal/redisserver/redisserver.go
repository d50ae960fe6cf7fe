// Package redisserver gives tests a real Redis. It starts the redis-server that is installed, on a free loopback port
// and with nothing on disk, and stops it by its process id.
//
// RELOCK_REDIS_SERVER names another server program, such as an older Redis, or Valkey. The program is started with options that
// Redis 6.2 knows, too, and as a sentinel with --sentinel.
//
// If REENTRANT_REDIS is set to a URL, redis://…, [URL] returns this server's URL and starts no server. If it is not set and
// there is no redis-server, tests that need one are skipped. With REENTRANT_REDIS_REQUIRED=1 these tests fail, so that CI
// cannot skip them unnoticed.
package redisserver

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	urlVariable      = "REENTRANT_REDIS"
	requiredVariable = "REENTRANT_REDIS_REQUIRED"
	binaryVariable   = "RELOCK_REDIS_SERVER"
)

// URL returns the URL of a Redis that may be shared with other tests and their processes. Use keys of your own, and no command
// that touches the keys of others. The Redis is the one that REENTRANT_REDIS names. If that is not set, it is a new one that
// ends with the test.
func URL(tb testing.TB) string {
	tb.Helper()
	if url := os.Getenv(urlVariable); url != "" {
		return url
	}
	return Start(tb).URL()
}

// A Server is a redis-server process of this test alone: it can be flushed, stopped and started again.
type Server struct {
	addr    string
	dir     string
	config  string // the name of a configuration file; "" for none
	options []string
	clock   *Clock            // nil: the server has the machine's clock
	bus     bool              // the server is a node of a Cluster
	ports   map[string]string // the ports that replaced FreePort, by option
	kept    []*port           // the reservations of all ports of the server
	process *exec.Cmd
	exited  chan struct{}
	log     *output
}

// FreePort is the value of an option in place of which the server gets a free port. Port returns this port.
const FreePort = "free port"

// Port returns the port that replaced FreePort in an option.
func (s *Server) Port(option string) string { return s.ports[option] }

// Start starts a server that is stopped when the test ends. The options are those of redis-server's command line.
func Start(tb testing.TB, options ...string) *Server {
	tb.Helper()
	return begin(tb, &Server{dir: tb.TempDir(), options: options})
}

// StartSentinel starts a sentinel. The lines are its configuration, such as "sentinel monitor …".
func StartSentinel(tb testing.TB, lines ...string) *Server {
	tb.Helper()
	dir := tb.TempDir()
	config := filepath.Join(dir, "sentinel.conf")
	if err := os.WriteFile(config, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		tb.Fatal(err)
	}
	return begin(tb, &Server{dir: dir, config: config, options: []string{"--sentinel"}})
}

// binary returns the server's program.
func binary() string { return cmp.Or(os.Getenv(binaryVariable), "redis-server") }

// NeedTLS skips a test if the server was built without TLS. This can be so only if RELOCK_REDIS_SERVER names the server.
func NeedTLS(tb testing.TB) {
	tb.Helper()
	// A server without a certificate ends at once, and prints what it is missing.
	why, _ := exec.CommandContext(tb.Context(), binary(), "--port", "0", "--tls-port", "1").CombinedOutput()
	if os.Getenv(binaryVariable) != "" && !strings.Contains(string(why), "No tls-cert-file") {
		tb.Skipf("%s was built without TLS", binary())
	}
}

// KnowsShards reports whether the server has sharded channels. Redis 6.2 has none.
func KnowsShards(tb testing.TB) bool {
	tb.Helper()
	version, err := exec.CommandContext(tb.Context(), binary(), "--version").Output()
	return err != nil || !strings.Contains(string(version), " v=6.") // if there is no server, Start skips or fails
}

// NeedShards skips a test if the server has no sharded channels. Only a server that RELOCK_REDIS_SERVER names may be so old.
func NeedShards(tb testing.TB) {
	tb.Helper()
	if os.Getenv(binaryVariable) != "" && !KnowsShards(tb) {
		tb.Skipf("%s has no sharded channels", binary())
	}
}

// Installed reports whether there is a server program that Start can start.
func Installed() bool {
	_, err := exec.LookPath(binary())
	return err == nil
}

func begin(tb testing.TB, s *Server) *Server {
	tb.Helper()
	if _, err := exec.LookPath(binary()); err != nil {
		if required, _ := strconv.ParseBool(os.Getenv(requiredVariable)); required {
			tb.Fatalf("%s is set, and there is no server: %v", requiredVariable, err)
		}
		tb.Skipf("no %s", binary())
	}
	tb.Cleanup(s.giveBack)
	if err := s.start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Stop)
	return s
}

// startTries is how often Start chooses ports. Where ports cannot be kept, another process may take a port before Redis does.
const startTries = 5

func (s *Server) start() error {
	var err error
	for range startTries {
		if err = s.choose(); err != nil {
			return err
		}
		if err = s.launch(); err == nil {
			return nil
		}
	}
	return err
}

// choose chooses the server's address, and the ports of its options.
func (s *Server) choose() error {
	s.giveBack()
	own, err := s.keepOwn()
	if err != nil {
		return err
	}
	s.addr = own.addr()
	s.ports = make(map[string]string)
	for i, option := range s.options {
		if option != FreePort {
			continue
		}
		p, err := s.keep(0)
		if err != nil {
			return err
		}
		s.ports[s.options[i-1]] = strconv.Itoa(p.number)
	}
	return nil
}

// busOffset is the difference between the port of a node's bus and the node's own port. Redis 6.2 has no option to change it.
const busOffset = 10000

// keepOwn reserves the server's own port. For a node of a Cluster it also reserves the port of the bus, so it does not use the
// highest ports, which have none.
func (s *Server) keepOwn() (*port, error) {
	for {
		own, err := s.keep(0)
		if err != nil || !s.bus {
			return own, err
		}
		if _, err := s.keep(own.number + busOffset); err == nil {
			return own, nil
		}
	}
}

// keep reserves a port until giveBack is called. If number is 0, it chooses any free port.
func (s *Server) keep(number int) (*port, error) {
	p, err := reserve(number)
	if err == nil {
		s.kept = append(s.kept, p)
	}
	return p, err
}

// giveBack gives up the ports that the server has, and the ports that it has tried to get.
func (s *Server) giveBack() {
	for _, p := range s.kept {
		p.close()
	}
	s.kept = nil
}

// launch starts the process on the server's address and waits until it is ready.
func (s *Server) launch() error {
	host, port, _ := net.SplitHostPort(s.addr)
	// A replica writes the data that it copies to a file, and a server reads this file when it starts.
	_ = os.Remove(filepath.Join(s.dir, "dump.rdb"))
	args := []string{"--bind", host, "--port", port, "--save", "", "--appendonly", "no", "--dir", s.dir}
	for i, option := range s.options {
		if option == FreePort {
			option = s.ports[s.options[i-1]]
		}
		args = append(args, option)
	}
	if s.config != "" {
		args = slices.Insert(args, 0, s.config)
	}
	s.log = new(output)
	s.process = exec.Command(binary(), args...)
	s.process.Stdout, s.process.Stderr = s.log, s.log
	if s.clock != nil {
		s.process.Env = s.clock.environment()
	}
	dieWithParent(s.process)
	s.exited = make(chan struct{})
	started := make(chan error, 1)
	go s.run(started)
	if err := <-started; err != nil {
		return err
	}
	if err := s.await(); err != nil {
		s.Stop()
		return fmt.Errorf("%w\n%s", err, s.log.String())
	}
	return nil
}

// run starts the process, sends the result to started, and waits until the process ends.
func (s *Server) run(started chan<- error) {
	defer close(s.exited)
	// The kernel ends the process when this thread ends, so the goroutine must keep the thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := s.process.Start()
	started <- err
	if err == nil {
		_ = s.process.Wait() // the log says how it ended
	}
}

// startTimeout bounds how long a server may take to become ready.
const startTimeout = time.Minute

// await waits until the server's log says that the server is ready. It does not send a command, because another process may
// have the port.
func (s *Server) await() error {
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); {
		if s.log.has("Ready to accept connections", "Sentinel ID is") {
			return nil
		}
		select {
		case <-s.exited:
			return fmt.Errorf("%s ended at once", binary())
		case <-time.After(2 * time.Millisecond):
		}
	}
	return fmt.Errorf("%s does not become ready", binary())
}

// output collects what a process prints.
type output struct {
	mu   sync.Mutex
	text []byte
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, p...)
	return len(p), nil
}

func (o *output) has(any ...string) bool {
	text := o.String()
	return slices.ContainsFunc(any, func(s string) bool { return strings.Contains(text, s) })
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.text)
}

// Addr returns the server's address.
func (s *Server) Addr() string { return s.addr }

// URL returns the server's address as redisbackend.Open takes it.
func (s *Server) URL() string { return "redis://" + s.addr }

// Log returns what the server has printed since it was last started.
func (s *Server) Log() string { return s.log.String() }

// Stop kills the server with SIGKILL, so the server saves nothing. If the server is stopped, Stop does nothing.
func (s *Server) Stop() {
	s.signal(syscall.SIGKILL)
	<-s.exited
}

// Restart starts a stopped server again, empty, on the same address.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	s.Stop()
	err := s.launch()
	// Another process may have the port for a moment, for example as the local port of a connection.
	for deadline := time.Now().Add(startTimeout); err != nil && time.Now().Before(deadline); err = s.launch() {
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

func (s *Server) signal(sig syscall.Signal) {
	select {
	case <-s.exited:
	default:
		_ = s.process.Process.Signal(sig) // the process may end at this moment
	}
}
