package memory

import (
	"context"
	"errors"
	"sync"

	"github.com/relock-go/relock/backend"
)

// InspectAll implements backend.Inspector. To a fault each lock is a command of its own.
func (c *Conn) InspectAll(ctx context.Context, inspections []backend.Inspection) {
	var commands sync.WaitGroup
	for i := range inspections {
		r, ok := inspections[i].Remote.(*remote)
		if !ok || r.c != c {
			inspections[i].Err = errors.New("memory: the lock is not one of this session")
			continue
		}
		commands.Go(func() { inspections[i].State, inspections[i].Err = r.Inspect(ctx) })
	}
	commands.Wait()
}
