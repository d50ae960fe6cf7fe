package crew

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

const (
	childEnv    = "RELOCK_EXAMPLE_CHILD"
	reportEvery = 50 * time.Millisecond
)

// A part is the message with which a parent gives a child its work.
type part struct {
	Name string
	Role any
}

// A phase is how far a child is.
type phase string

const (
	phaseReady   phase = "ready"
	phaseWorking phase = "working"
	phaseDone    phase = "done"
)

// A report is a line that a child sends.
type report[T any] struct {
	Phase phase
	Tally T // so far
}

// IsChild reports whether this process was started by [Run]. Its main function then only calls [Play].
func IsChild() bool {
	_, ok := os.LookupEnv(childEnv)
	return ok
}

// Play plays this child's role and returns the exit status: 0, or 1 after an error, which Play prints. The function play is a
// method of the role. Its context ends when the parent wants the child to stop, or has itself ended.
func Play[R, T any](program string, play func(role R, ctx context.Context, line *Line[T]) error) int {
	// Ctrl-C in a terminal goes to all processes, and timeout(1) also sends its signal to all. The parent receives the signal
	// and stops the children, so that each of them can give back its locks.
	signal.Ignore(os.Interrupt, syscall.SIGTERM)
	// When the parent has ended, a report cannot be written. That must be an ordinary error, so that the child still gives back
	// its locks.
	signal.Ignore(syscall.SIGPIPE)
	var role R
	mine := part{Role: &role}
	if err := json.Unmarshal([]byte(os.Getenv(childEnv)), &mine); err != nil {
		fmt.Fprintf(os.Stderr, "%s: role of the child: %v\n", program, err)
		return 1
	}
	ctx, line := listen[T](context.Background(), os.Stdin, os.Stdout)
	err := play(role, ctx, line)
	if err != nil && !errors.Is(err, syscall.EPIPE) {
		fmt.Fprintf(os.Stderr, "%s %s: %v\n", program, mine.Name, err)
		return 1
	}
	return 0
}

// A Line is a child's connection to its parent.
type Line[T any] struct {
	start <-chan struct{} // closed by the parent's line
	out   *json.Encoder
}

// listen opens the line, and returns a context that ends with the parent's input.
func listen[T any](ctx context.Context, stdin io.Reader, stdout io.Writer) (context.Context, *Line[T]) {
	ctx, cancel := context.WithCancel(ctx)
	start := make(chan struct{})
	go func() {
		defer cancel()
		lines := bufio.NewScanner(stdin)
		if lines.Scan() {
			close(start)
		}
		for lines.Scan() { // until the end
		}
	}()
	return ctx, &Line[T]{start: start, out: json.NewEncoder(stdout)}
}

// Work says that the child is ready, waits for the start, and runs the workers, each in its own goroutine and with a number
// from 0 on. It reports the result of tally until all workers are done. The first error ends the other workers. The end of ctx
// is not an error.
func (l *Line[T]) Work(ctx context.Context, workers int, tally func() T, run func(ctx context.Context, worker int) error) error {
	if err := l.say(phaseReady, tally()); err != nil {
		return err
	}
	select {
	case <-l.start:
	case <-ctx.Done():
		return nil
	}
	if err := l.work(ctx, workers, tally, run); err != nil {
		return err
	}
	return l.say(phaseDone, tally())
}

func (l *Line[T]) work(parent context.Context, workers int, tally func() T, run func(context.Context, int) error) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	var running sync.WaitGroup
	for worker := range workers {
		running.Go(func() {
			if err := run(ctx, worker); err != nil {
				cancel(err)
			}
		})
	}
	finished := make(chan struct{})
	go func() {
		running.Wait()
		close(finished)
	}()
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for {
		select {
		case <-finished:
			if parent.Err() != nil {
				return nil
			}
			return context.Cause(ctx)
		case <-tick.C:
			if err := l.say(phaseWorking, tally()); err != nil {
				cancel(err)
			}
		}
	}
}

// say sends one report.
func (l *Line[T]) say(p phase, tally T) error {
	if err := l.out.Encode(report[T]{Phase: p, Tally: tally}); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
