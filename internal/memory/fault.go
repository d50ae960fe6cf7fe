package memory

import (
	"sync"
	"time"
)

// A Verb is the kind of a command or message.
type Verb string

// The commands of a session, and the messages to it.
const (
	Connect    Verb = "connect"
	Acquire    Verb = "acquire"
	Reenter    Verb = "reenter"
	Release    Verb = "release"
	Renew      Verb = "renew" // one command for all locks of a call; its Op names the first of them
	Await      Verb = "await"
	Signal     Verb = "signal"
	Leave      Verb = "withdraw"
	Beat       Verb = "beat"
	Resume     Verb = "resume"
	Share      Verb = "share"
	Watch      Verb = "watch"
	Note       Verb = "note"
	Inspect    Verb = "inspect"
	Force      Verb = "force"
	Register   Verb = "register"   // writes the session's record of waits
	Registered Verb = "registered" // reads another session's record
	Push       Verb = "push"       // a message to a session, such as a grant
)

// An Op is a command or a pushed message that is under way.
type Op struct {
	Session string // A, B, C, … in the order of connecting
	Verb    Verb
	Lock    string
	Epoch   uint64
	Try     int // 1 for the first Op with this session, verb, lock and epoch since the Fault was set, then 2, 3 and so on
	_       struct{}
}

// A Fault decides what happens to an Op. The goroutine that sends a command or delivers a message calls the Fault with no mutex
// held, so the Fault may call the Backend. Several goroutines may call the Fault at once.
type Fault func(Op) Verdict

// A Verdict is what happens to an Op. The zero Verdict is [Pass]; fields may be combined.
type Verdict struct {
	Lost    bool          // the Op does not arrive: a command fails with an error that says so, a message is dropped
	Refused string        // if not "", the server refuses the command with these words
	Stopped string        // if not "", the server executes the command, and replies that it stopped half-way, with these words
	Delay   time.Duration // the Op arrives this much later; a command is executed even if its caller has given up by then
	Again   time.Duration // if not 0, a second copy arrives this long after the first
	Mute    bool          // the command is executed, the reply is lost
	Late    time.Duration // the reply comes this much later
	_       struct{}
}

// Verdicts without a parameter.
var (
	Pass      = Verdict{}
	Lose      = Verdict{Lost: true}
	LoseReply = Verdict{Mute: true}
)

// Refuse makes the server refuse a command with these words ([reentrant.Refused]).
func Refuse(words string) Verdict { return Verdict{Refused: words} }

// Stop makes the server execute a command, and reply that the command stopped half-way. For the caller the command is refused,
// and its outcome unknown.
func Stop(words string) Verdict { return Verdict{Stopped: words} }

// Delay makes a command or message arrive d later.
func Delay(d time.Duration) Verdict { return Verdict{Delay: d} }

// DelayReply executes a command at once and delays the reply by d.
func DelayReply(d time.Duration) Verdict { return Verdict{Late: d} }

// Duplicate makes a second copy of a command or message arrive d after the first.
func Duplicate(d time.Duration) Verdict { return Verdict{Again: max(d, 1)} }

// Script returns a Fault that gives each op of a verb the next verdict, and passes everything else:
//
//	memory.Script(memory.Release, memory.LoseReply, memory.Lose) // the first Release loses its reply, the second does not arrive
func Script(verb Verb, verdicts ...Verdict) Fault {
	var mu sync.Mutex
	return func(op Op) Verdict {
		mu.Lock()
		defer mu.Unlock()
		if op.Verb != verb || len(verdicts) == 0 {
			return Pass
		}
		v := verdicts[0]
		verdicts = verdicts[1:]
		return v
	}
}
