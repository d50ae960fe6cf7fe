package tier

import (
	"context"
	"fmt"
	"sync"

	"github.com/relock-go/relock/reentrant/internal/core"
)

// An alarm notifies the users of a name that they have lost their holds or permits. All users lose them together.
type alarm struct {
	session *core.Session
	name    string

	mu       sync.Mutex         // locked after the mutex of share.Name, before the queue's
	notifier *core.LossNotifier // of the present users; nil until one of them asks to be notified
	leaving  *sharedCall        // the call that gives up holds or permits at this moment
	notes    notes
}

// notifierLocked returns the loss notifier of the present users. a.mu is held.
func (a *alarm) notifierLocked() *core.LossNotifier {
	if a.notifier == nil {
		a.notifier = core.NewLossNotifier()
	}
	return a.notifier
}

// tripLocked drops the notes and closes the channels of Lost. The returned function ends the contexts of Do, and is called
// without a mutex. a.mu is held.
func (a *alarm) tripLocked() (notify func()) {
	a.notes.clear()
	notifier := a.notifier
	a.notifier = nil
	if notifier == nil {
		return func() {}
	}
	notifier.CloseLost()
	return notifier.Notify
}

// report reports that an owner has lost its holds, as e describes them.
func (a *alarm) report(e core.Event, why string) {
	a.session.Counts.Lost.Add(1)
	e.Kind, e.Lock, e.Err = core.EventLost, a.name, fmt.Errorf("%w (%s)", core.ErrLost, why)
	a.session.Report(context.Background(), e)
}
