package wire

import (
	"strconv"
	"strings"
	"time"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/protocol"
)

// A MessageKind is the first letter of a message.
type MessageKind byte

// The messages that scripts publish to a session's channel. Numbers follow the letter, then the hold key.
const (
	// Granted is sent by grant in common.lua to the session that got a lock:
	//
	//	g <epoch> <first token> <last token> <TTL, ms> <Redis time, µs> <hold key>
	Granted MessageKind = 'g'
	// Signalled is sent by notify in conditions.lua to the session of a waiter:
	//
	//	s <ticket> <1 if the session was given a place for it, else 0> <hold key>
	Signalled MessageKind = 's'
	// Wanted is sent by wanted in common.lua to a session whose hold may linger, or is watched, when another session asks:
	//
	//	w <epoch> <hold key>
	Wanted MessageKind = 'w'
	// Taken is sent by resume.lua to the session that had the hold:
	//
	//	t <epoch> <hold key>
	Taken MessageKind = 't'
	// ShareGranted is sent by sharing.lua to a session whose request was granted, or is a try that was refused. After a
	// refusal the session may have no units; then the tokens are 0, and <until> is the present:
	//
	//	h <epoch> <units> <first token> <last token> <may> <until, Redis time in µs> <Redis time, µs> <hold key>
	ShareGranted MessageKind = 'h'
	// ShareWanted is sent by sharing.lua to a session that has more units than it may keep, or that a try asks, or that may
	// keep all of its units again:
	//
	//	x <may> <order of the try, or 0> <hold key>
	ShareWanted MessageKind = 'x'
	// Freed is sent by quorum_call.lua to a session that waits for a lock:
	//
	//	f <hold key>
	Freed MessageKind = 'f'
)

// A Message is one message to a session. Only the fields that its kind names are set.
type Message struct {
	Kind        MessageKind
	Hold        string
	Epoch       uint64 // with Signalled the ticket
	Placed      bool
	Units, May  int
	Try         uint64
	First, Last uint64
	TTL         time.Duration
	Stamp       int64 // Redis time, µs
}

const (
	maxMessageTTL = 1e12 // ms: some thirty years
	maxStamp      = 9e15 // µs: the year 2255, which a double holds exactly
)

// Plausible reports whether a script can have given out these tokens at the time that the message names, if tokens are never
// far ahead of the clock. After a failover to a server whose clock is behind, implausible tokens may still be right.
func (m *Message) Plausible() bool {
	return m.Last <= uint64(m.Stamp+protocol.Horizon.Microseconds())
}

// ParseMessage reads a message; false if the text is anything else. Any client that may publish can write to the
// channel, so every part is checked.
func ParseMessage(text string) (m Message, ok bool) {
	if len(text) < 2 || text[1] != ' ' {
		return Message{}, false
	}
	m.Kind = MessageKind(text[0])
	switch rest := text[2:]; m.Kind {
	case Granted:
		ok = m.parseGranted(rest)
	case Signalled:
		ok = m.parseSignalled(rest)
	case Wanted, Taken:
		var n [1]uint64
		ok = m.parse(rest, n[:])
		m.Epoch = n[0]
	case ShareGranted:
		ok = m.parseShareGranted(rest)
	case ShareWanted:
		var n [2]uint64
		ok = m.parse(rest, n[:]) && n[0] <= backend.Unlimited
		m.May, m.Try = int(n[0]), n[1]
	case Freed:
		ok = m.parse(rest, nil)
	}
	return m, ok
}

// parse reads the numbers of a message, and the hold key, which is not empty.
func (m *Message) parse(rest string, numbers []uint64) bool {
	for i := range numbers {
		word, after, _ := strings.Cut(rest, " ")
		n, err := strconv.ParseUint(word, 10, 63)
		if err != nil {
			return false
		}
		numbers[i], rest = n, after
	}
	m.Hold = rest
	return rest != ""
}

func (m *Message) parseGranted(rest string) bool {
	var n [5]uint64
	if !m.parse(rest, n[:]) {
		return false
	}
	m.Epoch, m.First, m.Last = n[0], n[1], n[2]
	m.TTL, m.Stamp = time.Duration(n[3])*time.Millisecond, int64(n[4])
	return 0 < m.First && m.First <= m.Last && 0 < n[3] && n[3] < maxMessageTTL && m.Stamp < maxStamp
}

func (m *Message) parseSignalled(rest string) bool {
	var n [2]uint64
	if !m.parse(rest, n[:]) {
		return false
	}
	m.Epoch, m.Placed = n[0], n[1] == 1
	return m.Epoch > 0 && n[1] <= 1
}

func (m *Message) parseShareGranted(rest string) bool {
	var n [7]uint64
	if !m.parse(rest, n[:]) {
		return false
	}
	m.Epoch, m.Units, m.First, m.Last, m.May = n[0], int(n[1]), n[2], n[3], int(n[4])
	m.TTL, m.Stamp = time.Duration(n[5]-n[6])*time.Microsecond, int64(n[6])
	if n[4] > backend.Unlimited || n[5] >= maxStamp {
		return false
	}
	if n[1] == 0 {
		return m.First == 0 && m.Last == 0 && n[5] == n[6]
	}
	return n[1] <= backend.AllUnits && 0 < m.First && m.First <= m.Last && n[6] < n[5]
}

// String returns the message as the script writes it.
func (m Message) String() string {
	text := []byte{byte(m.Kind)}
	for _, n := range m.numbers() {
		text = strconv.AppendUint(append(text, ' '), n, 10)
	}
	return string(text) + " " + m.Hold
}

func (m *Message) numbers() []uint64 {
	stamp := uint64(m.Stamp)
	switch m.Kind {
	case Granted:
		return []uint64{m.Epoch, m.First, m.Last, Millis(m.TTL), stamp}
	case Signalled:
		if m.Placed {
			return []uint64{m.Epoch, 1}
		}
		return []uint64{m.Epoch, 0}
	case Wanted, Taken:
		return []uint64{m.Epoch}
	case ShareGranted:
		return []uint64{m.Epoch, uint64(m.Units), m.First, m.Last, uint64(m.May), stamp + uint64(m.TTL.Microseconds()), stamp}
	case ShareWanted:
		return []uint64{uint64(m.May), m.Try}
	}
	return nil
}
