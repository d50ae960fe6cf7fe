package relockgoredis_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/adapters/relockgoredis"
	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/backend/backendtest"
	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

const (
	limit = time.Minute
	tick  = 10 * time.Millisecond
)

func TestMain(m *testing.M) {
	testsize.Parallel(16)
	testsize.CollectLess()
	os.Exit(m.Run())
}

// open opens a Backend for a go-redis client. Both are closed when the test ends.
func open(t *testing.T, client redis.UniversalClient, opts ...redisbackend.Option) *redisbackend.Backend {
	t.Helper()
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	b, err := relockgoredis.Open(t.Context(), client, opts...)
	require.NoError(t, err)
	t.Cleanup(b.Close)
	return b
}

// patient returns options for a server at addr, with time limits that are longer than a machine stands still.
func patient(addr string) *redis.Options {
	return &redis.Options{Addr: addr, DialTimeout: limit, ReadTimeout: limit}
}

// locks takes a lock over a Backend, and checks that it is in the Redis that a client is connected to.
func locks(t *testing.T, b *redisbackend.Backend, client redis.Cmdable) {
	t.Helper()
	session, err := reentrant.NewSession(b, reentrant.WithLease(limit))
	require.NoError(t, err)
	defer func() { assert.NoError(t, session.Close(context.WithoutCancel(t.Context()))) }()
	name := rand.Text()
	require.NoError(t, session.NewLock(name).Do(t.Context(), func(ctx context.Context) error {
		n, err := client.Exists(ctx, name).Result()
		require.NoError(t, err)
		assert.EqualValues(t, 1, n, "the lock is where the client looks")
		return nil
	}))
}

func TestConformance(t *testing.T) {
	t.Parallel()
	url := redisserver.URL(t)
	options := []backendtest.Option{backendtest.InParallel()}
	if !testsize.Full() {
		options = append(options, backendtest.Skip("five seconds that redisbackend's tests wait too: RELOCK_FULL=1 runs it",
			"ShareCopies/ASessionThatGaveAllBackIsSoonForgotten"))
	}
	backendtest.Run(t, func(t *testing.T) backend.Backend {
		o, err := redis.ParseURL(url)
		require.NoError(t, err)
		o.DialTimeout, o.ReadTimeout = limit, limit
		return open(t, redis.NewClient(o))
	}, options...)
}

func TestConformanceEmbedded(t *testing.T) {
	if redisserver.Installed() { // TestConformance runs the suite
		testsize.OfATopology(t)
	}
	t.Parallel()
	backendtest.Run(t, func(t *testing.T) backend.Backend {
		o := patient(redistest.Start(t).Addr())
		o.Protocol = 2 // only commands that the embedded Redis knows
		return open(t, redis.NewClient(o))
	}, backendtest.InParallel())
}

func TestConformanceCluster(t *testing.T) {
	testsize.OfATopology(t)
	t.Parallel()
	servers := redisserver.StartCluster(t, 3, 0)
	backendtest.Run(t, func(t *testing.T) backend.Backend {
		return open(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: servers.Addrs(), DialTimeout: limit, ReadTimeout: limit}))
	}, backendtest.InParallel())
}

func TestDatabaseNameProtocolAndPrefix(t *testing.T) {
	t.Parallel()
	o := patient(redisserver.Start(t).Addr())
	o.DB, o.ClientName, o.Protocol = 3, "orders", 2
	client := redis.NewClient(o)
	b := open(t, client, redisbackend.WithPrefix("lock:"))
	session, err := reentrant.NewSession(b, reentrant.WithLease(limit))
	require.NoError(t, err)
	defer func() { assert.NoError(t, session.Close(context.WithoutCancel(t.Context()))) }()
	require.NoError(t, session.NewLock("a").Do(t.Context(), func(ctx context.Context) error {
		assert.EqualValues(t, 1, client.Exists(ctx, "lock:a").Val())
		list := client.ClientList(ctx).Val()
		assert.NotEmpty(t, list)
		for line := range strings.Lines(list) {
			assert.Contains(t, line, " name=orders ")
			assert.Contains(t, line, " resp=2")
		}
		return nil
	}))
}

// Credential providers are asked for each connection, so the next connection uses credentials that have changed.
func TestCredentials(t *testing.T) {
	t.Parallel()
	server := redisserver.Start(t)
	admin := redis.NewClient(patient(server.Addr()))
	t.Cleanup(func() { _ = admin.Close() })
	require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "app", "on", ">first", "~*", "&*", "+@all").Err())
	var password atomic.Value
	password.Store("first")
	for name, set := range map[string]func(*redis.Options){
		"fixed": func(o *redis.Options) { o.Username, o.Password = "app", password.Load().(string) },
		"provider": func(o *redis.Options) {
			o.CredentialsProvider = func() (string, string) { return "app", password.Load().(string) }
		},
		"provider with a context": func(o *redis.Options) {
			o.CredentialsProvider = func() (string, string) { return "not", "asked" }
			o.CredentialsProviderContext = func(ctx context.Context) (string, string, error) {
				return "app", password.Load().(string), ctx.Err()
			}
		},
	} {
		o := patient(server.Addr())
		set(o)
		b := open(t, redis.NewClient(o))
		locks(t, b, admin)
		next := "next " + name
		require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "app", "resetpass", ">"+next).Err(), name)
		require.NoError(t, admin.Do(t.Context(), "CLIENT", "KILL", "USER", "app").Err(), name)
		password.Store(next)
		if name != "fixed" {
			locks(t, b, admin)
		}
	}
	o := patient(server.Addr())
	o.CredentialsProviderContext = func(context.Context) (string, string, error) { return "", "", errors.New("the vault is closed") }
	_, err := relockgoredis.Open(t.Context(), redis.NewClient(o))
	require.ErrorContains(t, err, "the vault is closed")
	o = patient(server.Addr())
	o.Username, o.Password = "app", "s3cret"
	_, err = relockgoredis.Open(t.Context(), redis.NewClient(o))
	require.ErrorContains(t, err, "WRONGPASS")
	assert.NotContains(t, err.Error(), "s3cret")
}

func TestOpenChecksTheServersCertificate(t *testing.T) {
	t.Parallel()
	redisserver.NeedTLS(t)
	addr, roots := serveTLS(t)
	o := patient(addr)
	o.TLSConfig = &tls.Config{}
	_, err := relockgoredis.Open(t.Context(), redis.NewClient(o))
	require.ErrorContains(t, err, "certificate", "the system does not trust the authority")
	o.TLSConfig = &tls.Config{RootCAs: roots}
	client := redis.NewClient(o)
	locks(t, open(t, client), client)
}

// serveTLS starts a Redis with a certificate of its own for the loopback address.
func serveTLS(t *testing.T) (addr string, roots *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "server"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	private, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	files := map[string]*pem.Block{"crt": {Type: "CERTIFICATE", Bytes: der}, "key": {Type: "EC PRIVATE KEY", Bytes: private}}
	folder := t.TempDir()
	for name, block := range files {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), pem.EncodeToMemory(block), 0o600))
	}
	server := redisserver.Start(t, "--tls-port", redisserver.FreePort, "--tls-cert-file", filepath.Join(folder, "crt"),
		"--tls-key-file", filepath.Join(folder, "key"), "--tls-ca-cert-file", filepath.Join(folder, "crt"), "--tls-auth-clients", "no")
	roots = x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(pem.EncodeToMemory(files["crt"])))
	return net.JoinHostPort("127.0.0.1", server.Port("--tls-port")), roots
}

// A dialer of the caller makes every connection: here to a server that only it can reach.
func TestDialer(t *testing.T) {
	t.Parallel()
	server := redisserver.Start(t)
	o := patient("behind.the.tunnel:1")
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if network != "tcp" || addr != "behind.the.tunnel:1" {
			return nil, fmt.Errorf("dialed %s %s", network, addr)
		}
		return new(net.Dialer).DialContext(ctx, network, server.Addr())
	}
	client := redis.NewClient(o)
	locks(t, open(t, client), client)
}

func TestDialerOfACluster(t *testing.T) {
	t.Parallel()
	servers := redisserver.StartCluster(t, 3, 0)
	var dialed atomic.Int32
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: servers.Addrs()[:1], DialTimeout: limit, ReadTimeout: limit,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			dialed.Add(1)
			return new(net.Dialer).DialContext(ctx, network, addr)
		}})
	b := open(t, client)
	assert.NotZero(t, dialed.Load())
	for range 5 {
		locks(t, b, client)
	}
}

// A failover client connects to the server that Sentinel names. The old master's connections are closed when it becomes
// a replica, so Relock follows the client to the new master.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	master := redisserver.Start(t, "--repl-diskless-sync-delay", "0")
	host, port, err := net.SplitHostPort(master.Addr())
	require.NoError(t, err)
	replica := redisserver.Start(t, "--replicaof", host, port)
	follower := redis.NewClient(patient(replica.Addr()))
	t.Cleanup(func() { _ = follower.Close() })
	require.Eventually(t, func() bool { // a sentinel without a connection to it tries again ten seconds later
		return strings.Contains(follower.Info(t.Context(), "replication").Val(), "master_link_status:up")
	}, limit, tick, "the replica is connected")
	watcher := redisserver.StartSentinel(t, fmt.Sprintf("sentinel monitor main %s %s 1", host, port),
		"sentinel down-after-milliseconds main 600000")
	sentinel := redis.NewSentinelClient(patient(watcher.Addr()))
	t.Cleanup(func() { _ = sentinel.Close() })
	require.Eventually(t, func() bool {
		list, err := sentinel.Replicas(t.Context(), "main").Result()
		return err == nil && len(list) == 1 && list[0]["master-link-status"] == "ok"
	}, limit, tick, "the sentinel knows the replica")

	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "main", SentinelAddrs: []string{watcher.Addr()},
		DialTimeout: limit, ReadTimeout: limit})
	b := open(t, client)
	first := redis.NewClient(patient(master.Addr()))
	t.Cleanup(func() { _ = first.Close() })
	locks(t, b, first)

	require.Eventually(t, func() bool {
		_ = sentinel.Failover(t.Context(), "main").Err() // an error means that the failover is under way, or was given up
		info := follower.Info(t.Context(), "replication").Val()
		return strings.Contains(info, "role:master")
	}, 2*limit, time.Second, "the replica is the master")
	host, port, err = net.SplitHostPort(replica.Addr())
	require.NoError(t, err)
	require.NoError(t, first.ReplicaOf(t.Context(), host, port).Err()) // Sentinel does so ten seconds later
	var session *reentrant.Session
	require.Eventually(t, func() bool { // opening a session is a single try, and one of its connections may still lead to the old master
		for _, kind := range []string{"normal", "pubsub"} { // as Sentinel does
			_ = first.ClientKillByFilter(t.Context(), "TYPE", kind).Err()
		}
		session, err = reentrant.NewSession(b, reentrant.WithLease(limit))
		return err == nil
	}, limit, tick, "a session is opened")
	defer func() { _ = session.Close(context.WithoutCancel(t.Context())) }()
	lock := session.NewLock("after")
	require.Eventually(t, func() bool {
		if lock.Lock(t.Context()) != nil {
			return false
		}
		defer lock.Unlock(t.Context()) //nolint:errcheck // what the old master answered is forgotten
		return follower.Exists(t.Context(), "after").Val() == 1
	}, limit, 10*tick, "locks are taken at the new master")
}

// An option that cannot be passed on to rueidis, and that users would miss, gives an error that names it.
func TestOptionsThatCannotBePassedOnAreRefused(t *testing.T) {
	t.Parallel()
	for want, client := range map[string]redis.UniversalClient{
		"nil client":                nil,
		"OnConnect":                 redis.NewClient(&redis.Options{OnConnect: func(context.Context, *redis.Conn) error { return nil }}),
		"Streaming":                 redis.NewClient(&redis.Options{StreamingCredentialsProvider: streaming{}}),
		"ClusterSlots":              redis.NewFailoverClusterClient(&redis.FailoverOptions{MasterName: "main", SentinelAddrs: []string{"127.0.0.1:1"}}),
		"of a Ring":                 redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}, HeartbeatFrequency: time.Hour}),
		"does not show its options": struct{ redis.UniversalClient }{},
	} {
		if client != nil && want != "does not show its options" {
			t.Cleanup(func() { _ = client.Close() })
		}
		_, err := relockgoredis.Open(t.Context(), client)
		require.ErrorContains(t, err, "relockgoredis: Open: ")
		require.ErrorContains(t, err, want)
	}
}

type streaming struct{}

func (streaming) Subscribe(auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	return nil, nil, errors.New("this must not be called")
}

// The caller's own type that embeds a client can be used like the client.
func TestEmbedded(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(patient(redisserver.Start(t).Addr()))
	locks(t, open(t, struct{ *redis.Client }{client}), client)
}

func TestOpenReportsWhatIsWrong(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { _ = client.Close() }()
	_, err := relockgoredis.Open(t.Context(), client)
	require.ErrorContains(t, err, "connection refused")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = relockgoredis.Open(ctx, client)
	require.ErrorIs(t, err, context.Canceled)
	_, err = relockgoredis.Open(t.Context(), client, redisbackend.WithPrefix("{}"))
	require.ErrorContains(t, err, "braces")
}
