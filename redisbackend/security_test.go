package redisbackend_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
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

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/backend/backendtest"
	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/reentrant"
)

// An authority signs certificates. Only this test trusts it.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.key = must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	a.cert = template
	a.cert = a.sign("ca", template, &a.key.PublicKey)
	return a
}

// sign writes a certificate to a file.
func (a *authority) sign(name string, template *x509.Certificate, key *ecdsa.PublicKey) *x509.Certificate {
	der := must(x509.CreateCertificate(rand.Reader, template, a.cert, key, a.key))
	a.write(name+".crt", "CERTIFICATE", der)
	return must(x509.ParseCertificate(der))
}

func (a *authority) write(file, kind string, der []byte) {
	require.NoError(a.t, os.WriteFile(a.file(file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// server starts a Redis that has a certificate for the loopback address, and returns its TLS address.
func (a *authority) server(options ...string) string {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	a.sign("server", &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "server"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}, &key.PublicKey)
	a.write("server.key", "EC PRIVATE KEY", must(x509.MarshalECPrivateKey(key)))
	server := redisserver.Start(a.t, append([]string{"--tls-port", redisserver.FreePort, "--tls-cert-file", a.file("server.crt"),
		"--tls-key-file", a.file("server.key"), "--tls-ca-cert-file", a.file("ca.crt"), "--tls-auth-clients", "no"}, options...)...)
	return net.JoinHostPort("127.0.0.1", server.Port("--tls-port"))
}

func TestOpenChecksTheServersCertificate(t *testing.T) {
	t.Parallel()
	redisserver.NeedTLS(t)
	a := newAuthority(t)
	addr := a.server("--requirepass", "s3cret")
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	client := connect(t, addr, password("s3cret"), func(o *rueidis.ClientOption) {
		o.TLSConfig, o.Dialer.Timeout = &tls.Config{RootCAs: roots}, limit
	})
	s := &site{T: t, client: client, name: "lock"}
	var err error
	s.b, err = redisbackend.New(client)
	require.NoError(t, err)
	hears(s, s.join("m"), 1)

	_, err = redisbackend.Open(t.Context(), patiently("rediss://:s3cret@"+addr))
	require.ErrorContains(t, err, "certificate", "the system does not trust the authority")
	assert.NotContains(t, err.Error(), "s3cret")
	b, err := redisbackend.Open(t.Context(), patiently("rediss://:s3cret@"+addr+"?skip_verify=true"))
	require.NoError(t, err)
	t.Cleanup(b.Close)
	s.b = b
	hears(s, s.join("m2"), 1)

	// A process reads the system's authorities only once.
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOpenTrustsTheSystemsAuthorities$", "-test.v")
	child.Env = append(os.Environ(), "SSL_CERT_FILE="+a.file("ca.crt"), systemURL+"="+patiently("rediss://:s3cret@"+addr))
	output, err := child.CombinedOutput()
	require.NoError(t, err, string(output))
	assert.Contains(t, string(output), "--- PASS: TestOpenTrustsTheSystemsAuthorities")
}

const systemURL = "RELOCK_TEST_TLS_URL"

func TestOpenTrustsTheSystemsAuthorities(t *testing.T) {
	url := os.Getenv(systemURL)
	if url == "" {
		t.Skip("TestOpenChecksTheServersCertificate runs it in a process with an authority of its own")
	}
	b, err := redisbackend.Open(t.Context(), url)
	require.NoError(t, err)
	defer b.Close()
	lock := newSession(t, b).NewLock("lock")
	require.NoError(t, lock.Do(t.Context(), func(context.Context) error { return nil }))
}

// documented returns the words of doc.go after a phrase, up to the end of the sentence or to a comma and "and".
func documented(t *testing.T, phrase string) (commands []string) {
	doc := strings.ReplaceAll(string(must(os.ReadFile("doc.go"))), "\n// ", " ")
	_, list, ok := strings.Cut(doc, phrase)
	require.True(t, ok, phrase)
	list, _, _ = strings.Cut(list, ".")
	for command := range strings.FieldsFuncSeq(list, func(r rune) bool { return (r < 'a' || r > 'z') && r != '|' }) {
		if command != "and" {
			commands = append(commands, "+"+command)
		}
	}
	return commands
}

// setUser returns the first ACL SETUSER line after a phrase of docs/rights.md.
func setUser(t *testing.T, phrase string) []string {
	guide := string(must(os.ReadFile("../docs/rights.md")))
	_, rest, _ := strings.Cut(guide, phrase)
	_, line, ok := strings.Cut(rest, "\n    ACL SETUSER ")
	require.True(t, ok, phrase)
	line, _, _ = strings.Cut(line, "\n")
	return append([]string{"ACL", "SETUSER"}, strings.Fields(line)...)
}

// The phrases of docs/rights.md before the lines of rights.
const (
	rightsAlways         = "A user with these rights"
	rightsWithRedisson   = "With `WithRedisson` also:"
	rightsInACluster     = "In a Cluster also:"
	rightsWithReplicas   = "With `WithReplicas` also:"
	rightsWithoutScripts = "With `WithoutScripts` instead of scripts:"
	rightsToShards       = "`WithReplicas` and `WithoutScripts` also need:"
	rightsToANamedClient = "It also sends its name"
)

// leastUser makes a user with exactly the documented rights on each of the servers.
func leastUser(t *testing.T, more []string, servers ...*site) func(*rueidis.ClientOption) {
	for _, server := range servers {
		phrases := append([]string{rightsAlways}, more...)
		version := redisVersion(server)
		if version >= 7.0 && len(more) > 0 {
			phrases = append(phrases, rightsToShards)
		}
		if version != 7.0 {
			phrases = append(phrases, rightsToANamedClient)
		}
		for _, phrase := range phrases {
			server.run(setUser(t, phrase)...)
		}
	}
	return func(o *rueidis.ClientOption) { o.Username, o.Password = "locks", "password" }
}

// redisVersion returns a server's version of Redis, such as 7.2. For another program it is the version with which the program
// is compatible.
func redisVersion(server *site) float64 {
	server.Helper()
	info := must(server.do("INFO", "server").ToString())
	_, rest, _ := strings.Cut(info, "redis_version:")
	parts := strings.SplitN(rest, ".", 3)
	require.Len(server, parts, 3)
	return must(strconv.ParseFloat(parts[0]+"."+parts[1], 64))
}

// The package's documentation and docs/rights.md list the same rights.
func TestTheDocumentedRightsAgree(t *testing.T) {
	always := setUser(t, rightsAlways)[3:]
	assert.Equal(t, []string{"on", ">password", "~app:*", "resetchannels", "&app:relock:session:*"}, always[:5])
	assert.ElementsMatch(t, documented(t, "and the commands "), always[5:])
	assert.ElementsMatch(t, documented(t, "In a Cluster it also needs "),
		slices.Concat(setUser(t, rightsInACluster)[3:], setUser(t, rightsToShards)[3:]))
}

// wellBehaved requires that a server has refused no command, and has only keys with the prefix.
func wellBehaved(server *site) {
	server.Helper()
	denied, err := server.do("ACL", "LOG").ToArray()
	require.NoError(server, err)
	for _, entry := range denied {
		assert.Fail(server, "refused", "%v", must(entry.AsStrMap()))
	}
	keys, err := server.do("KEYS", "*").AsStrSlice()
	require.NoError(server, err)
	for _, key := range keys {
		assert.True(server, strings.HasPrefix(key, "app:"), "%q is outside of the prefix", key)
	}
}

// The documented rights are enough for all features of a Backend. No command is refused, not even a command without which a
// Backend would only be slower.
func TestTheDocumentedRightsAreEnoughForEverything(t *testing.T) {
	testsize.OfATopology(t)
	t.Parallel()
	for how, c := range map[string]struct {
		rights  []string
		options []redisbackend.Option
		cases   []backendtest.Option
	}{
		"scripts": {}, "no scripts": {
			[]string{rightsWithoutScripts}, []redisbackend.Option{redisbackend.WithoutScripts()},
			[]backendtest.Option{backendtest.Skip("long, and no other commands", "Together", "Name/IsOneLockEach", "Renew/ManyLocksAtOnce",
				"Condition/TheSignalOfAWaiterThatLeavesGoesToTheNext", "Condition/AnAcknowledgedSignalGoesToNoOtherWaiter",
				"Condition/ASignalThatNoSessionReceivedGoesToTheNext")},
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			server := redisserver.Start(t)
			admin := node(t, server)
			client := connect(t, server.Addr(), leastUser(t, c.rights, admin), func(o *rueidis.ClientOption) {
				o.ForceSingleClient = true // otherwise the client asks whether this is a Cluster, which the server refuses
			})
			b, err := redisbackend.New(client, append(c.options, redisbackend.WithPrefix("app:"))...)
			require.NoError(t, err)
			t.Run("verbs", func(t *testing.T) {
				backendtest.Run(t, func(*testing.T) backend.Backend { return b }, append(c.cases, backendtest.InParallel())...)
			})
			s := &site{T: t, client: client, b: b, name: "lock"}
			registry := s.join("m").conn.(backend.Registry)
			require.NoError(t, registry.Register(s.ctx(), "waits", time.Minute))
			assert.Equal(t, "waits", must(registry.Registered(s.ctx(), "m")))
			require.NoError(t, registry.Register(s.ctx(), "", 0))
			wellBehaved(admin)
			if how == "scripts" {
				requireUsed(admin, setUser(t, rightsAlways)[3:])
			}
		})
	}
}

// requireUsed requires that each command to which a user has the right was sent to a server.
func requireUsed(server *site, rights []string) {
	server.Helper()
	info := must(server.do("INFO", "commandstats").ToString())
	for _, right := range rights {
		if command, ok := strings.CutPrefix(right, "+"); ok {
			command, subcommand, _ := strings.Cut(command, "|")
			assert.Regexp(server, `cmdstat_`+command+`(\|`+subcommand+`)?:`, info, "%s is not needed", right) // Redis 6.2 does not count subcommands
		}
	}
}

func TestTheDocumentedRightsAreEnoughForReplicas(t *testing.T) {
	t.Parallel()
	server := redisserver.Start(t)
	admin := node(t, server)
	client := connect(t, server.Addr(), leastUser(t, []string{rightsWithReplicas}, admin), func(o *rueidis.ClientOption) {
		o.ForceSingleClient = true
	})
	b, err := redisbackend.New(client, redisbackend.WithPrefix("app:"), redisbackend.WithReplicas(1, time.Millisecond))
	require.NoError(t, err)
	require.ErrorIs(t, newSession(t, b).NewLock("lock").Lock(t.Context()), backend.ErrNotReplicated, "there are none")
	wellBehaved(admin)
}

func TestTheDocumentedRightsAreEnoughForAllOfACluster(t *testing.T) {
	t.Parallel()
	servers := redisserver.StartCluster(t, 3, 0)
	all := nodes(t, servers)
	client := connect(t, servers.Masters[0].Addr(), leastUser(t, []string{rightsInACluster}, all...))
	b, err := newBackend(client, "app:")
	require.NoError(t, err)
	s := &site{T: t, client: client, b: b, name: "lock"}
	one, two := s.join("one"), s.join("two")
	handOver(one, two, 1)
	next := uint64(2)
	if redisserver.KnowsShards(t) {
		next = untilHeard(all, "app:relock:session:{app:lock}:two", one, two, next)
	}
	for n := range uint64(2) {
		handOver(one, two, next+n)
	}
	for _, node := range all {
		wellBehaved(node)
	}
}

func TestTheDocumentedRightsAreEnoughForRedisson(t *testing.T) {
	t.Parallel()
	server := redisserver.Start(t)
	admin := node(t, server)
	client := connect(t, server.Addr(), leastUser(t, []string{rightsWithRedisson}, admin), func(o *rueidis.ClientOption) {
		o.ForceSingleClient = true
	})
	b, err := redisbackend.New(client, redisbackend.WithPrefix("app:"), redisbackend.WithRedisson())
	require.NoError(t, err)
	s := &site{T: t, client: client, b: b, name: "lock"}
	heard := (&site{T: t, client: connect(t, server.Addr())}).subscribe(false, "redisson_lock__channel:{app:lock}")
	a := s.join("a")
	a.take(1)
	a.release(1)
	heard.says(t, "0", "the release is published")
	admin.run("HSET", "app:lock", javaThread, "1")
	admin.run("PEXPIRE", "app:lock", text(lease.Milliseconds()))
	a.wait(2)
	admin.run("DEL", "app:lock")
	a.granted()
	wellBehaved(admin)
}

// A user with these rights cannot reach anything outside its prefix.
func TestTheDocumentedRightsReachNothingElse(t *testing.T) {
	t.Parallel()
	server := redisserver.Start(t)
	admin := node(t, server)
	admin.run("SET", "secret", "1")
	client := connect(t, server.Addr(), leastUser(t, nil, admin))
	least := &site{T: t, client: client}
	for _, words := range [][]string{
		{"GET", "secret"}, {"SET", "secret", "2"}, {"DEL", "secret"}, {"HSET", "ap", "f", "v"}, {"PUBLISH", "other", "m"},
		{"PUBLISH", "relock:session:m", "m"}, {"EVAL", "return 1", "1", "secret"}, {"KEYS", "*"},
		{"EVAL", "return redis.c" + "all('GET', 'secret')", "0"}, {"FLUSHALL"}, {"CONFIG", "GET", "*"}, {"ACL", "LIST"}, {"SCRIPT", "FLUSH"},
	} {
		err := least.do(words...).Error()
		require.Error(t, err, "%q", words)
		assert.Regexp(t, "NOPERM|can't access|permissions", err.Error(), "%q", words)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	require.ErrorContains(t, client.Receive(ctx, client.B().Subscribe().Channel("other").Build(), nil), "NOPERM")
	for _, prefix := range []string{"", "web:", "ap"} {
		b, err := newBackend(client, prefix)
		require.NoError(t, err)
		_, err = b.Connect(t.Context(), "m", newMember())
		require.ErrorContains(t, err, "NOPERM", "%q", prefix)
		assert.True(t, backend.Refused(err))
	}
	assert.Equal(t, "1", must(admin.do("GET", "secret").ToString()))
}

// If passwords change while sessions are open, errors and the log report that, but do not contain the passwords.
func TestPasswordsAreNotInErrorsOrLogs(t *testing.T) {
	t.Parallel()
	server := redisserver.Start(t, "--requirepass", "s3cret")
	admin := connect(t, server.Addr(), password("s3cret"))
	b, err := redisbackend.Open(t.Context(), patiently("redis://:s3cret@"+server.Addr()))
	require.NoError(t, err)
	t.Cleanup(b.Close)
	var log buffer
	s := &site{T: t, client: admin, b: b}
	logger := reentrant.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	session := s.session(slices.Concat(calm, []reentrant.Option{logger})...)
	lock := session.NewLock("lock")
	ctx := reentrant.WithOwner(t.Context(), "holder")
	require.NoError(t, lock.Lock(ctx))
	s.run("CONFIG", "SET", "requirepass", "n3wer")
	for _, kind := range []string{"normal", "pubsub"} {
		_ = s.do("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes").Error()
	}
	require.Eventually(t, func() bool {
		err = lock.Verify(ctx)
		return err != nil && strings.Contains(err.Error(), "WRONGPASS")
	}, limit, tick)
	assert.NotContains(t, err.Error(), "s3cret")
	err = session.NewLock("another").Lock(t.Context())
	require.ErrorContains(t, err, "WRONGPASS")
	assert.NotContains(t, err.Error(), "s3cret")
	require.Error(t, lock.Unlock(ctx))
	written := func() bool { return strings.Contains(log.String(), "lock released") }
	require.Eventually(t, written, limit, tick, "the whole log")
	assert.NotContains(t, log.String(), "s3cret")
	assert.NotContains(t, log.String(), "n3wer")
	assert.Contains(t, log.String(), "WRONGPASS", "the log is not empty")
}

// A buffer can be written to by several goroutines at once.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// nasty are names that confuse a protocol that was written without care.
var nasty = []string{
	"\x00", "a\x00b", "\n", "\r\n", "$3\r\nfoo\r\n", " ", "a b c", "a:b", ":", "::", "~", "*", "*linger", "?", "[a-z]", "%s%.0f%n", "é", "日本",
	"\xff\xfe", "{", "{a", "a{b", "{tag}", "x{tag}y{z}", "{{a}}", "}", "{}", "a}b", "{a}}", "'", `"`, `\`, "]]", "--", "${x}", "relock", "relock:", "relock:{a}:t:a",
	"Relock:", "0", "-1", "9007199254740993", "1:", "1:a", "g 1 2 3 4 5 x", "s 1 0 x", "nil", "false", strings.Repeat("x", 4096), strings.Repeat("{", 4096),
	strings.Repeat("\x00", 4096), strings.Repeat("x", 4097), "",
}

// Any bytes can be the name of a lock, a condition or an owner, or are refused with a clear error.
func TestNamesOfAnyBytesWorkOrAreRefused(t *testing.T) {
	each(t, func(t *testing.T, s *site) {
		one, two := s.join("one"), s.join("two")
		epoch, accepted := uint64(0), 0
		for i, name := range nasty {
			remote, err := one.conn.Bind(name)
			if err != nil {
				assert.ErrorContains(t, err, "lock name", "%q", name)
				assert.Less(t, len(err.Error()), 400)
				continue
			}
			accepted++
			assert.Equal(t, name, remote.Name())
			condition, owner := nasty[(i+7)%len(nasty)], nasty[(i+13)%len(nasty)]
			epoch += 10
			one.remote, two.remote = remote, two.bind(name)
			one.take(epoch, owned(owner))
			state := one.inspect()
			require.Equal(t, owner, state.Owner)
			require.Equal(t, "one", state.Session)
			two.wait(epoch, owned(name))
			await, err := one.conditions().Await(s.ctx(), backend.AwaitRequest{Condition: condition, Epoch: epoch, Ticket: epoch + 1,
				Owner: owner, Holds: 3, Patience: patience, GrantTTL: grantTTL})
			require.NoError(t, err)
			require.Equal(t, backend.Waited, await)
			g := two.granted()
			require.Equal(t, name, g.Name)
			require.Equal(t, name, two.inspect().Owner)
			two.take(epoch, owned(name))
			_, err = two.conditions().Signal(s.ctx(), backend.SignalRequest{Condition: condition, Epoch: epoch, Op: 1})
			require.NoError(t, err)
			select {
			case got := <-one.signals:
				require.Equal(t, signal{epoch + 1, true}, got)
			case <-time.After(limit):
				require.FailNow(t, "not signalled", "%q", condition)
			}
			require.Equal(t, backend.Released, two.release(epoch))
			require.Equal(t, name, one.granted().Name)
			state = one.inspect()
			require.Equal(t, owner, state.Owner)
			require.Equal(t, 3, state.Holds)
			require.Equal(t, backend.Released, one.release(epoch+1))
		}
		assert.Greater(t, accepted, 30)
	})
}
