package memory

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/protocol"
)

// A line is a function that returns what a trace shows of a command. It is called only if there is a trace.
type line func() string

// String formats the op for a trace: verb, session, lock, epoch.
func (op Op) String() string {
	s := fmt.Sprintf("%s %s", op.Verb, op.Session)
	if op.Lock != "" {
		s += " " + shown(op.Lock)
	}
	if op.Epoch > 0 {
		s += fmt.Sprintf(" e%d", op.Epoch)
	}
	return s
}

// String formats what is unusual about the verdict, for a trace, after the reply.
func (v Verdict) String() string {
	var words []string
	if v.Delay > 0 {
		words = append(words, fmt.Sprintf("%v late", v.Delay))
	}
	switch {
	case v.Lost:
		words = append(words, "lost")
	case v.Stopped != "":
		words = append(words, "stopped: "+v.Stopped)
	case v.Mute:
		words = append(words, "reply lost")
	case v.Late > 0:
		words = append(words, fmt.Sprintf("reply %v late", v.Late))
	}
	if len(words) == 0 {
		return ""
	}
	return " (" + strings.Join(words, ", ") + ")"
}

// acquired returns the trace's line of an acquire.
func acquired(op Op, req backend.AcquireRequest, reply backend.AcquireReply, err error) string {
	words := []string{op.String(), "owner=" + shown(req.Owner)}
	for _, flag := range []struct {
		set  bool
		name string
	}{{!req.Queue, "try"}, {req.Barge, "barge"}, {req.Yield, "yield"}, {req.Fixed, "fixed"}, {req.KeepTTL, "keepttl"}} {
		if flag.set {
			words = append(words, flag.name)
		}
	}
	return strings.Join(append(words, "→", outcome(err, describeReply(reply))), " ")
}

// outcome returns the end of a line: the reply, or why the server did nothing.
func outcome(err error, answer string) string {
	switch {
	case err == nil:
		return answer
	case errors.Is(err, protocol.ErrLate):
		return "late"
	}
	return "refused: " + err.Error()
}

func describeReply(reply backend.AcquireReply) string {
	switch reply.Status {
	case backend.Granted:
		return "granted " + block(reply.First, reply.Last)
	case backend.Waiting:
		return fmt.Sprintf("waiting %v", reply.TTL.Round(time.Millisecond))
	}
	return "stale"
}

var results = map[backend.ReleaseResult]string{
	backend.Released: "released", backend.Withdrawn: "withdrawn", backend.Nothing: "nothing",
	backend.Freed: "freed",
}

func either(ok bool, yes, no string) string {
	if ok {
		return yes
	}
	return no
}

// shown formats a name or an owner for a trace: quoted if it is not plain, and cut if it is long.
func shown(s string) string {
	const most = 32
	if len(s) > most {
		return fmt.Sprintf("%q…", s[:most])
	}
	if q := fmt.Sprintf("%q", s); s == "" || len(q) != len(s)+2 || strings.ContainsRune(s, ' ') {
		return q
	}
	return s
}

// block formats a block of tokens for a trace.
func block(first, last backend.Token) string {
	if first == last {
		return fmt.Sprint(first)
	}
	return fmt.Sprintf("%d-%d", first, last)
}
