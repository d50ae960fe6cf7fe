package redistest

import (
	"net"
	"sync"
)

// newPipe returns the two ends of a connection in memory: the client's, and the server's.
//
// As with a socket, the server's writes do not wait for the client to read. With a net.Pipe alone a client
// that publishes to itself would block: the server replies only after it has pushed the message to each subscriber, and
// a subscriber may be waiting for a reply.
func newPipe() (client, served net.Conn) {
	client, end := net.Pipe()
	b := &buffered{Conn: end, more: make(chan struct{}, 1), closed: make(chan struct{})}
	go b.send()
	return client, b
}

// A buffered connection keeps what is written until the peer reads it.
type buffered struct {
	net.Conn
	more   chan struct{} // has an element if there may be something unsent
	closed chan struct{}
	close  sync.Once

	mu     sync.Mutex
	unsent []byte
}

func (b *buffered) Write(p []byte) (int, error) {
	b.mu.Lock()
	b.unsent = append(b.unsent, p...)
	b.mu.Unlock()
	select {
	case b.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

// send sends what is written until the connection is closed.
func (b *buffered) send() {
	for {
		select {
		case <-b.more:
		case <-b.closed:
			return
		}
		if _, err := b.Conn.Write(b.take()); err != nil {
			return // closed by either end, as the reader will see
		}
	}
}

func (b *buffered) take() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.unsent
	b.unsent = nil
	return p
}

func (b *buffered) Close() error {
	b.close.Do(func() { close(b.closed) })
	return b.Conn.Close()
}
