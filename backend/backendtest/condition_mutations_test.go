package backendtest_test

import (
	"context"

	"github.com/relock-go/relock/backend"
)

// The faults of the mutants for conditions.

func awaits(change func(*backend.AwaitRequest)) func() hooks {
	return func() hooks {
		return hooks{await: func(ctx context.Context, r *remote, q backend.AwaitRequest) (backend.TicketStatus, error) {
			change(&q)
			return r.conditions().Await(ctx, q)
		}}
	}
}

func awaitAnswers(status backend.TicketStatus) func() hooks {
	return func() hooks {
		return hooks{await: func(ctx context.Context, r *remote, q backend.AwaitRequest) (backend.TicketStatus, error) {
			_, err := r.conditions().Await(ctx, q)
			return status, err
		}}
	}
}

func signals(change func(*backend.SignalRequest)) func() hooks {
	return func() hooks {
		return hooks{signal: func(ctx context.Context, r *remote, q backend.SignalRequest) (backend.SignalReply, error) {
			change(&q)
			return r.conditions().Signal(ctx, q)
		}}
	}
}

func signalReplies(change func(*backend.SignalReply)) func() hooks {
	return func() hooks {
		return hooks{signal: func(ctx context.Context, r *remote, q backend.SignalRequest) (backend.SignalReply, error) {
			a, err := r.conditions().Signal(ctx, q)
			change(&a)
			return a, err
		}}
	}
}

func copiesSignal() hooks {
	op := uint64(0)
	return signals(func(q *backend.SignalRequest) { op++; q.Op = op })()
}

func signalsLost() hooks {
	return hooks{signalled: func(backend.Sink, string, uint64, bool) {}}
}

func placesHidden() hooks {
	return hooks{signalled: func(to backend.Sink, name string, ticket uint64, _ bool) { to.Signalled(name, ticket, false) }}
}

func withdrawAcknowledges() hooks {
	return hooks{withdraw: func(ctx context.Context, r *remote, condition string, ticket uint64) (backend.TicketStatus, error) {
		status, err := r.conditions().Withdraw(ctx, condition, ticket)
		if status == backend.Signalled {
			_, _ = r.conditions().Beat(ctx, condition, nil, []uint64{ticket})
		}
		return status, err
	}}
}

func beats(f func(ctx context.Context, r *remote, condition string, tickets, served []uint64) ([]backend.TicketStatus, error)) hooks {
	return hooks{beat: f}
}

func beatAcknowledges() hooks {
	return beats(func(ctx context.Context, r *remote, condition string, tickets, served []uint64) ([]backend.TicketStatus, error) {
		answers, err := r.conditions().Beat(ctx, condition, tickets, served)
		for i, a := range answers {
			if a == backend.Signalled {
				_, _ = r.conditions().Beat(ctx, condition, nil, tickets[i:i+1])
			}
		}
		return answers, err
	})
}

func beatReportsNothing() hooks {
	return beats(func(ctx context.Context, r *remote, condition string, tickets, served []uint64) ([]backend.TicketStatus, error) {
		answers, err := r.conditions().Beat(ctx, condition, tickets, served)
		for i := range answers {
			answers[i] = backend.Waited
		}
		return answers, err
	})
}

func beatKeepsNothing() hooks {
	return beats(func(ctx context.Context, r *remote, condition string, tickets, served []uint64) ([]backend.TicketStatus, error) {
		_, err := r.conditions().Beat(ctx, condition, nil, served)
		answers := make([]backend.TicketStatus, len(tickets))
		for i := range answers {
			answers[i] = backend.Waited
		}
		return answers, err
	})
}

func servedInVain() hooks {
	return beats(func(ctx context.Context, r *remote, condition string, tickets, _ []uint64) ([]backend.TicketStatus, error) {
		return r.conditions().Beat(ctx, condition, tickets, nil)
	})
}

// Every lock has only one condition, whatever its name is.
func oneCondition() hooks {
	return hooks{
		await:  awaits(func(q *backend.AwaitRequest) { q.Condition = "one" })().await,
		signal: signals(func(q *backend.SignalRequest) { q.Condition = "one" })().signal,
		withdraw: func(ctx context.Context, r *remote, _ string, ticket uint64) (backend.TicketStatus, error) {
			return r.conditions().Withdraw(ctx, "one", ticket)
		},
		beat: func(ctx context.Context, r *remote, _ string, tickets, served []uint64) ([]backend.TicketStatus, error) {
			return r.conditions().Beat(ctx, "one", tickets, served)
		},
	}
}
