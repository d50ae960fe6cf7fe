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
	Push       Verb = "push"       // a message to a session: a grant, for instance
)

// An Op is a command or a pushed message that is under way.
type Op struct {
	Session string // A, B, C, … in the order of connecting
	Verb    Verb
	Lock    string
	Epoch   uint64
	Try     int // 1 for the first with this session, verb, lock and epoch since the Fault was set
	_       struct{}
}

// A Fault decides what happens to an Op. It is called by the goroutine that sends a command or delivers a message,
// with no mutex held, so it may call the Backend; several goroutines may call it at once.
type Fault func(Op) Verdict

// A Verdict is what happens to an Op. The zero Verdict is [Pass]; fields may be combined.
type Verdict struct {
	Lost    bool          // it does not arrive: the command fails with an error that says so, the message is dropped
	Refused string        // if not "", the server refuses it with these words
	Stopped string        // if not "", the server executes it, and its reply is that it stopped half-way, with these words
	Delay   time.Duration // it arrives this much later; a command whose caller gives up meanwhile is executed all the same
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

// Stop makes the server execute a command, and say that it stopped half-way: refused, the outcome unknown.
func Stop(words string) Verdict { return Verdict{Stopped: words} }

// Delay makes a command or message arrive d later.
func Delay(d time.Duration) Verdict { return Verdict{Delay: d} }

// DelayReply executes a command at once and delays the reply by d.
func DelayReply(d time.Duration) Verdict { return Verdict{Late: d} }

// Duplicate makes a second copy of a command or message arrive d after the first.
func Duplicate(d time.Duration) Verdict { return Verdict{Again: max(d, 1)} }

// Script returns a Fault that gives each op of a verb the next verdict, and passes everything else:
//
//	memory.Script(memory.Release, memory.LoseReply, memory.Lose) // the first Release's reply is lost, and the second Release
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
