package tier

import (
	"time"

	"github.com/relock-go/relock/reentrant/internal/share"
)

// A waitLimit ends a timed wait. If the session waits at the server when the time is up, the server is asked once more, because
// the message with the grant can have been lost. The server then has an eighth of a command's time limit for its reply, and the
// call stays in line until the reply comes or that time is over.
type waitLimit struct {
	timer *time.Timer
	over  chan time.Time // the end of the wait
	left  chan struct{}  // closed when the call no longer waits

	unheard time.Time // when the server was asked once more and did not reply; otherwise zero. Written before a send to over
}

// limitOf returns the waitLimit of a wait that begins now; nil if the wait has no time limit.
func (h *Handle) limitOf(n *share.Name, t Try, begun time.Time) *waitLimit {
	if t.For == 0 {
		return nil
	}
	l := &waitLimit{over: make(chan time.Time, 1), left: make(chan struct{})}
	l.timer = time.AfterFunc(t.For, func() { l.end(n, begun, h.Session.Config.CommandTimeout/8) })
	return l
}

// end asks the server once more if LastCall allows it, and ends the wait.
func (l *waitLimit) end(n *share.Name, begun time.Time, most time.Duration) {
	if heard := n.LastCall(begun); heard != nil {
		asked, timer := time.Now(), time.NewTimer(most)
		defer timer.Stop()
		select {
		case <-heard: //nolint:errcheck // the name keeps the error
		case <-l.left:
		case <-timer.C:
			l.unheard = asked
		}
	}
	l.over <- time.Now()
}

// ends returns the channel that delivers when the wait is over.
func (l *waitLimit) ends() <-chan time.Time {
	if l == nil {
		return nil
	}
	return l.over
}

func (l *waitLimit) stop() {
	if l != nil {
		l.timer.Stop()
		close(l.left)
	}
}
