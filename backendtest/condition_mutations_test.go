package backendtest_test

import (
	"context"

	"github.com/relock-go/relock/reentrant"
)

// What the mutants do wrong with conditions.

func awaits(change func(*reentrant.AwaitRequest)) func() hooks {
	return func() hooks {
		return hooks{await: func(ctx context.Context, r *remote, q reentrant.AwaitRequest) (reentrant.TicketStatus, error) {
			change(&q)
			return r.Remote.Await(ctx, q)
		}}
	}
}

func awaitAnswers(status reentrant.TicketStatus) func() hooks {
	return func() hooks {
		return hooks{await: func(ctx context.Context, r *remote, q reentrant.AwaitRequest) (reentrant.TicketStatus, error) {
			_, err := r.Remote.Await(ctx, q)
			return status, err
		}}
	}
}

func signals(change func(*reentrant.SignalRequest)) func() hooks {
	return func() hooks {
		return hooks{signal: func(ctx context.Context, r *remote, q reentrant.SignalRequest) (reentrant.SignalReply, error) {
			change(&q)
			return r.Remote.Signal(ctx, q)
		}}
	}
}

func signalReplies(change func(*reentrant.SignalReply)) func() hooks {
	return func() hooks {
		return hooks{signal: func(ctx context.Context, r *remote, q reentrant.SignalRequest) (reentrant.SignalReply, error) {
			a, err := r.Remote.Signal(ctx, q)
			change(&a)
			return a, err
		}}
	}
}

func copiesSignal() hooks {
	op := uint64(0)
	return signals(func(q *reentrant.SignalRequest) { op++; q.Op = op })()
}

func signalsLost() hooks {
	return hooks{signalled: func(reentrant.Sink, string, uint64, bool) {}}
}

func placesHidden() hooks {
	return hooks{signalled: func(to reentrant.Sink, name string, ticket uint64, _ bool) { to.Signalled(name, ticket, false) }}
}

func withdrawAcknowledges() hooks {
	return hooks{withdraw: func(ctx context.Context, r *remote, condition string, ticket uint64) (reentrant.TicketStatus, error) {
		status, err := r.Remote.Withdraw(ctx, condition, ticket)
		if status == reentrant.Signalled {
			_, _ = r.Remote.Beat(ctx, condition, nil, []uint64{ticket})
		}
		return status, err
	}}
}

func beats(f func(ctx context.Context, r *remote, condition string, tickets, served []uint64) ([]reentrant.TicketStatus, error)) hooks {
	return hooks{beat: f}
}

func beatAcknowledges() hooks {
	return beats(func(ctx context.Context, r *remote, condition string, tickets, served []uint64) ([]reentrant.TicketStatus, error) {
		answers, err := r.Remote.Beat(ctx, condition, tickets, served)
		for i, a := range answers {
			if a == reentrant.Signalled {
				_, _ = r.Remote.Beat(ctx, condition, nil, tickets[i:i+1])
			}
		}
		return answers, err
	})
}

func beatTellsNothing() hooks {
	return beats(func(ctx context.Context, r *remote, condition string, tickets, served []uint64) ([]reentrant.TicketStatus, error) {
		answers, err := r.Remote.Beat(ctx, condition, tickets, served)
		for i := range answers {
			answers[i] = reentrant.Waited
		}
		return answers, err
	})
}

func beatKeepsNothing() hooks {
	return beats(func(ctx context.Context, r *remote, condition string, tickets, served []uint64) ([]reentrant.TicketStatus, error) {
		_, err := r.Remote.Beat(ctx, condition, nil, served)
		answers := make([]reentrant.TicketStatus, len(tickets))
		for i := range answers {
			answers[i] = reentrant.Waited
		}
		return answers, err
	})
}

func servedInVain() hooks {
	return beats(func(ctx context.Context, r *remote, condition string, tickets, _ []uint64) ([]reentrant.TicketStatus, error) {
		return r.Remote.Beat(ctx, condition, tickets, nil)
	})
}

// Every lock has a single condition, whatever it is called.
func oneCondition() hooks {
	return hooks{
		await:  awaits(func(q *reentrant.AwaitRequest) { q.Condition = "one" })().await,
		signal: signals(func(q *reentrant.SignalRequest) { q.Condition = "one" })().signal,
		withdraw: func(ctx context.Context, r *remote, _ string, ticket uint64) (reentrant.TicketStatus, error) {
			return r.Remote.Withdraw(ctx, "one", ticket)
		},
		beat: func(ctx context.Context, r *remote, _ string, tickets, served []uint64) ([]reentrant.TicketStatus, error) {
			return r.Remote.Beat(ctx, "one", tickets, served)
		},
	}
}
