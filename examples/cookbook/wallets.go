package cookbook

import (
	"context"
	"errors"

	"github.com/relock-go/relock/reentrant"
)

// A Ledger keeps what users have. Between Balance and SetBalance of one user no other caller may change it.
type Ledger interface {
	Balance(ctx context.Context, user string) (int, error)
	SetBalance(ctx context.Context, user string, balance int) error
}

// ErrTooLittle is returned when a user has less than is to be spent.
var ErrTooLittle = errors.New("not enough in the wallet")

// Spend takes an amount from a user's wallet. Calls for one user come one after the other, in the whole deployment;
// calls for different users do not wait for each other.
func Spend(ctx context.Context, session *reentrant.Session, ledger Ledger, user string, amount int) error {
	return session.NewLock("wallet:"+user).Do(ctx, func(ctx context.Context) error {
		balance, err := ledger.Balance(ctx, user)
		if err != nil {
			return err
		}
		if balance < amount {
			return ErrTooLittle
		}
		return ledger.SetBalance(ctx, user, balance-amount)
	})
}
