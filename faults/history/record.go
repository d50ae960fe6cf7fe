package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Now is the machine's monotonic clock in nanoseconds. It is the same in all processes.
func Now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // the clock is always there
	}
	return t.Nano()
}

// A Kind is the kind of an operation.
type Kind string

// The kinds of operations. Acquire is any way to take the lock. Look sends no command. Await gives the lock up, waits, and
// takes the lock again. Its outcome is OK if the hold afterwards is a new one, with a token of its own, and No if it is still
// the hold from before.
const (
	Acquire Kind = "acquire"
	Unlock  Kind = "unlock"
	Verify  Kind = "verify"
	Look    Kind = "look"
	Await   Kind = "await"
)

// An Outcome is the result of an operation.
type Outcome string

// The outcomes. Pending: the call did not return, because the process died.
const (
	Pending Outcome = ""
	OK      Outcome = "ok"       // done; of Look and Verify: the lock is held
	No      Outcome = "no"       // nothing was acquired, or nothing is known
	Lost    Outcome = "lost"     // the hold ended by itself
	NotHeld Outcome = "not held" // there was no hold
	Unknown Outcome = "unknown"  // of Unlock: there was no reply from Redis; for its owner the hold has ended
	Untold  Outcome = "untold"   // of Look at a shared hold: it is gone, but its owner's Lost channel is still open
)

// An Op is one operation of one client. A client does one operation after the other.
type Op struct {
	Process string  `json:"process"`
	Client  string  `json:"client"`
	Lock    string  `json:"lock"`
	Kind    Kind    `json:"kind"`
	Call    int64   `json:"call"`
	Return  int64   `json:"return,omitempty"`
	Outcome Outcome `json:"outcome,omitempty"`
	Token   uint64  `json:"token,omitempty"` // of an acquire; 0 if the lock was lost before its token was read
	Read    bool    `json:"read,omitempty"`  // for the read side; Token is then the version
	Units   int     `json:"units,omitempty"` // permits
	Note    string  `json:"note,omitempty"`  // the text of the error
}

// A Log writes operations to a file. It writes each line at once, so the death of the process costs at most half a line.
type Log struct {
	mu   sync.Mutex
	file *os.File
}

// NewLog makes the file.
func NewLog(path string) (*Log, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	return &Log{file: file}, nil
}

// Write adds an operation. An operation that may never return is written twice: when it is called and when it has returned.
func (l *Log) Write(op Op) error {
	line, err := json.Marshal(op)
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("history: %w", err)
	}
	return nil
}

// Close ends the file.
func (l *Log) Close() error { return l.file.Close() }

// Read returns the operations of a file in the order of their completion, followed by those that were not completed.
func Read(path string) ([]Op, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	defer func() { _ = file.Close() }() // the file was only read
	var ops []Op
	pending := make(map[string]Op) // by client
	for lines := json.NewDecoder(file); ; {
		var op Op
		switch err := lines.Decode(&op); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF): // only a dead process leaves half a line
			for _, op := range pending {
				ops = append(ops, op)
			}
			return ops, nil
		case err != nil:
			return nil, fmt.Errorf("history: %s: %w", path, err)
		case op.Outcome == Pending:
			pending[op.Client] = op
		default:
			delete(pending, op.Client)
			ops = append(ops, op)
		}
	}
}
