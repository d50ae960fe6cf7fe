package memory

import (
	"context"
	"errors"
	"sync"

	"github.com/relock-go/relock/backend"
)

// InspectAll implements backend.Inspector. It sends one command for each lock.
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
