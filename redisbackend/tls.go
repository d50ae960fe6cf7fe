package redisbackend

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// explainTLS adds to the error of a client that got no reply whether the server speaks TLS and the client does not, or the
// other way round: it asks the server in the way that the client did not try. Neither side's error says so. A server without
// TLS even waits for the rest of the line when it is sent the beginning of a handshake, and the client's time limit ends that.
func explainTLS(ctx context.Context, option rueidis.ClientOption, err error) error {
	if wire.WordsOf(err) != "" || wire.NeverSent(err) || ctx.Err() != nil {
		return err
	}
	if len(option.InitAddress) == 0 || option.DialCtxFn != nil || option.DialFn != nil {
		return err // the caller has its own way to connect
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(option.Dialer.Timeout, rueidis.DefaultDialTimeout))
	defer cancel()
	switch address := option.InitAddress[0]; {
	case option.TLSConfig == nil && speaksTLS(ctx, address):
		return fmt.Errorf("the server speaks TLS at %s (use rediss://, or set TLSConfig): %w", address, err)
	case option.TLSConfig != nil && speaksPlainly(ctx, address):
		return fmt.Errorf("the server speaks no TLS at %s (use redis://, without TLSConfig): %w", address, err)
	}
	return err
}

// silence is how long silentTLS waits for a reply before it asks the server in the way that the client did not try: with
// TLS or without it. Callers wait longer than that.
const silence = 500 * time.Millisecond

var errSilent = fmt.Errorf("no reply within %v", silence)

// silentTLS waits for the duration silence, and then asks the server in the way that the client did not try. If the server
// replies, silentTLS sends to found an error that says so, since the caller may not wait until the client gives up. stop ends
// all this.
func silentTLS(ctx context.Context, option rueidis.ClientOption) (found <-chan error, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	hint := make(chan error, 1)
	timer := time.AfterFunc(silence, func() {
		if err := explainTLS(ctx, option, errSilent); err != errSilent { //nolint:errorlint // with a hint it is another error
			hint <- err
		}
	})
	return hint, func() { timer.Stop(); cancel() }
}

// speaksTLS reports whether a server takes a handshake. It sends nothing else, so the certificate does not matter.
func speaksTLS(ctx context.Context, address string) bool {
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// speaksPlainly reports whether a server replies to a PING in plain text, if only to refuse it.
func speaksPlainly(ctx context.Context, address string) bool {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	reply := make([]byte, 1)
	if _, err := conn.Write([]byte("*1\r\n$4\r\nPING\r\n")); err != nil {
		return false
	}
	_, err = io.ReadFull(conn, reply)
	return err == nil && (reply[0] == '+' || reply[0] == '-')
}
