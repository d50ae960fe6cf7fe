package history

import (
	"fmt"
	"strings"

	"github.com/anishathalye/porcupine"
)

// A step is an operation as the model sees it. hold is the number of the hold that the step is about.
type step struct {
	verb  verb
	hold  int
	token uint64
	by    string
	// recent says that Redis forgot something less than a lease ago. If that was not the hold, it may have been the hold's
	// renewal, so the hold may end sooner than its owner expects.
	recent bool
	// late says that recent is true and the operation does not ask Redis. If Redis forgot the hold, its owner need not know
	// that yet.
	late bool
}

type verb string

const (
	take    verb = "take"    // an outermost acquire
	reenter verb = "reenter" //
	shown   verb = "shown"   // an operation showed the owner that it has the lock
	part    verb = "part"    // an Unlock that is not the last
	give    verb = "give"    // the last Unlock
	lapse   verb = "lapse"   // the hold ends by itself, unless it has already ended
	forget  verb = "forget"  // Redis forgets the lock
	doubt   verb = "doubt"   // Redis may have forgotten the last writes
)

// A state is the lock between two steps. It is a value: == compares it.
type state struct {
	hold   int    // the present hold; 0: the lock is free
	count  int    // the hold count
	token  uint64 // the hold's token; 0: not known
	max    uint64 // the highest token so far
	doubt  bool   // Redis may have forgotten the hold, or the end of its lease
	ghosts string // holds that Redis forgot and whose owners do not know that, as text: a slice cannot be compared
}

var model = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(s, input, _ any) (bool, any) {
		next, ok := s.(state).do(input.(step))
		return ok, next
	},
	DescribeOperation: func(input, _ any) string {
		in := input.(step)
		return fmt.Sprintf("%s %s hold %d, token %d", in.by, in.verb, in.hold, in.token)
	},
	DescribeState: func(s any) string {
		st := s.(state)
		if st.hold == 0 {
			return fmt.Sprintf("free, tokens up to %d", st.max)
		}
		return fmt.Sprintf("hold %d × %d, token %d", st.hold, st.count, st.token)
	},
}

// do does one step, and returns false if no lock can do it.
func (s state) do(in step) (state, bool) {
	held := s.hold == in.hold
	switch in.verb {
	case take:
		if s.hold != 0 && s.doubt {
			s = s.forgets()
		}
		if s.hold != 0 || in.token != 0 && in.token <= s.max {
			return s, false
		}
		s.hold, s.count, s.token, s.max = in.hold, 1, in.token, max(s.max, in.token)
	case reenter:
		if !held || s.token != 0 && in.token != 0 && s.token != in.token {
			return s, false
		}
		s.count++
		s.doubt = false
	case shown:
		s.doubt = s.doubt && (!held || in.recent)
		return s, held || in.late && s.haunted(in.hold)
	case part:
		if held && s.count > 1 {
			s.count--
			s.doubt = s.doubt && in.recent
			return s, true
		}
		return s, in.late && s.haunted(in.hold)
	case give:
		switch {
		case held && s.count == 1:
			s = s.free()
		case in.late && s.haunted(in.hold):
			return s.exorcise(in.hold), true
		default:
			return s, false
		}
	case lapse:
		if held {
			s = s.free()
		}
		return s.exorcise(in.hold), true
	case forget:
		return s.forgets(), true
	case doubt:
		s.doubt = s.hold != 0
	}
	return s, true
}

func (s state) free() state {
	s.hold, s.count, s.token, s.doubt = 0, 0, 0, false
	return s
}

func (s state) forgets() state {
	if s.hold != 0 {
		s.ghosts += ghost(s.hold)
	}
	return s.free()
}

// ghost returns the text for a hold that Redis forgot: the hold's number between blanks. The set of ghosts consists of such
// texts.
func ghost(hold int) string { return fmt.Sprintf(" %d ", hold) }

func (s state) haunted(hold int) bool { return strings.Contains(s.ghosts, ghost(hold)) }

func (s state) exorcise(hold int) state {
	s.ghosts = strings.Replace(s.ghosts, ghost(hold), "", 1)
	return s
}
