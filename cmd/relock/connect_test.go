//go:build unix

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/redisserver"
)

func TestAWrongPasswordIsReportedAndNotShown(t *testing.T) {
	t.Parallel()
	server := redisserver.Start(t, "--requirepass", "right")
	url := func(password string) string {
		return slowly(strings.Replace(server.URL(), "//", "//:"+password+"@", 1))
	}
	r := start(t, url("hunter2"), "run", "lock", "--", "true")
	r.exits(exitRedis)
	assert.Contains(t, r.stderr.String(), "WRONGPASS")
	assert.NotContains(t, r.stderr.String(), "hunter2")
	start(t, url("right"), "run", "lock", "--", "true").exits(0)
}

func TestOpenChecksTheServersCertificate(t *testing.T) {
	t.Parallel()
	certificate, file := certificate(t)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go relay(listener, redisserver.Start(t).Addr())
	url := slowly("rediss://" + listener.Addr().String())

	r := start(t, url, "run", "lock", "--", "true")
	r.exits(exitRedis)
	assert.Contains(t, r.stderr.String(), "x509")
	for _, args := range [][]string{{"run", "lock", "--", "true"}, {"list", "--all"}} {
		r = newRun(t, url, args...)
		r.cmd.Env = append(r.cmd.Env, "SSL_CERT_FILE="+file)
		r.cmd.Stdout, r.cmd.Stderr = r.stdout, r.stderr
		r.begin()
		r.exits(0)
	}
	assert.Contains(t, r.stdout.String(), "lock")
}

// certificate makes a certificate for this machine, and a file that makes a client trust it.
func certificate(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "trusted.pem")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}

// relay forwards connections until the listener is closed.
func relay(listener net.Listener, addr string) {
	for {
		in, err := listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", addr)
		if err != nil {
			_ = in.Close()
			continue
		}
		go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
		go func() { _, _ = io.Copy(in, out); _ = in.Close() }()
	}
}
