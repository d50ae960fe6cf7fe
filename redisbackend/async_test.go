package redisbackend_test

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/reentrant"
)

// BenchmarkAsyncUnlock measures a section of one goroutine with and without WithAsyncUnlock, on a server nearby and on one a
// millisecond away, with one lock and with a new lock each time.
func BenchmarkAsyncUnlock(b *testing.B) {
	modes := []struct {
		name string
		opts []reentrant.Option
	}{{"default", nil}, {"async", []reentrant.Option{reentrant.WithAsyncUnlock()}}}
	for _, away := range []time.Duration{0, time.Millisecond} {
		addr := redisserver.Start(b).Addr()
		if away > 0 {
			addr = faraway(b, addr, away)
		}
		for _, fresh := range []bool{false, true} {
			for _, mode := range modes {
				b.Run(fmt.Sprintf("away=%v/fresh=%v/%s", away, fresh, mode.name), func(b *testing.B) {
					backend, err := redisbackend.New(connect(b, addr))
					require.NoError(b, err)
					session, err := reentrant.NewSession(backend, mode.opts...)
					require.NoError(b, err)
					l := session.NewLock("one")
					for i := 0; b.Loop(); i++ {
						if fresh {
							l = session.NewLock(fmt.Sprint(mode.name, b.N, "/", i))
						}
						if l.Lock(b.Context()) != nil || l.Unlock(b.Context()) != nil {
							b.Fatal("failed")
						}
					}
					require.NoError(b, session.Close(b.Context()))
				})
			}
		}
	}
}

// faraway returns an address that forwards to the server at addr, and whose replies come later by d.
func faraway(tb testing.TB, addr string, d time.Duration) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", addr)
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() {
				_, _ = io.Copy(server, client)
				_ = server.Close()
			}()
			go reply(client, server, d)
		}
	}()
	return listener.Addr().String()
}

// reply passes the server's data on to the client with a delay of d, until the server or the client has closed its connection.
func reply(client, server net.Conn, d time.Duration) {
	type piece struct {
		data []byte
		due  time.Time
	}
	pieces := make(chan piece, 1<<10)
	go func() {
		defer func() { _ = client.Close() }()
		for p := range pieces {
			time.Sleep(time.Until(p.due))
			if _, err := client.Write(p.data); err != nil {
				_ = server.Close()
			}
		}
	}()
	defer close(pieces)
	for {
		data := make([]byte, 1<<14)
		n, err := server.Read(data)
		if err != nil {
			return
		}
		pieces <- piece{data[:n], time.Now().Add(d)}
	}
}
