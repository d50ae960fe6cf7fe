package memory

import (
	"sync"
	"time"
)

// A Verb says what is on its way between a session and the server.
type Verb string

// The commands of a session, and what is pushed to it.
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
	Register   Verb = "register"   // what the session's owners wait for
	Registered Verb = "registered" // what another's do
	Push       Verb = "push"       // the message that tells a session of a grant
)

// An Op is a command or a pushed message on its way.
type Op struct {
	Session string // A, B, C, … in the order of connecting
	Verb    Verb
	Lock    string
	Epoch   uint64
	Try     int // 1 for the first with this session, verb, lock and epoch since the Fault was set
	_       struct{}
}

// A Fault decides what becomes of an Op. It is called by the goroutine that sends a command or delivers a message,
// with no mutex held, so it may call the Backend; several goroutines may call it at once.
type Fault func(Op) Verdict

// A Verdict is what becomes of an Op. The zero Verdict is [Pass]; fields may be combined.
type Verdict struct {
	Lost    bool          // it does not arrive: the command's error says so, the message is dropped
	Refused string        // the server answers with these words instead of executing it
	Delay   time.Duration // it arrives so much later; a command that is given up meanwhile is executed all the same
	Again   time.Duration // if not 0, a second copy arrives so long after the first
	Mute    bool          // the command is executed, the reply is lost
	Late    time.Duration // the reply comes so much later
	_       struct{}
}

// Verdicts that need no number.
var (
	Pass      = Verdict{}
	Lose      = Verdict{Lost: true}
	LoseReply = Verdict{Mute: true}
)

// Refuse has the server answer a command with its own words ([reentrant.Refused]).
func Refuse(words string) Verdict { return Verdict{Refused: words} }

// Delay has a command or message arrive d later.
func Delay(d time.Duration) Verdict { return Verdict{Delay: d} }

// DelayReply has a command executed at once and answered d later.
func DelayReply(d time.Duration) Verdict { return Verdict{Late: d} }

// Duplicate has a second copy of a command or message arrive d after the first.
func Duplicate(d time.Duration) Verdict { return Verdict{Again: max(d, 1)} }

// Script is a Fault that gives each op of a verb the next verdict, and passes everything else:
//
//	memory.Script(memory.Release, memory.LoseReply, memory.Lose) // the first is answered in vain, the second is lost
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
