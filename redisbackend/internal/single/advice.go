package single

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"github.com/relock-go/relock/backend"
)

var _ backend.Adviser = (*Conn)(nil)

// Advice implements backend.Adviser. All keys of locks have a TTL, so the server may evict them under any policy but
// noeviction, as soon as its memory is used up. Users of the locks need no right to INFO: without it there is no advice.
func (c *Conn) Advice(ctx context.Context) []string {
	client := c.Deployment.Client
	info, err := client.Do(ctx, client.B().Info().Section("memory").Build()).ToString()
	if err != nil {
		return nil
	}
	policy, limit := fieldOf(info, "maxmemory_policy"), fieldOf(info, "maxmemory")
	if policy == "" || policy == "noeviction" || limit == "" || limit == "0" {
		return nil
	}
	return []string{fmt.Sprintf("the server evicts locks when its memory is used up: set maxmemory-policy noeviction in place of %s", policy)}
}

// fieldOf returns a field of a reply to INFO, "" if there is none.
func fieldOf(info, name string) string {
	for lines := bufio.NewScanner(strings.NewReader(info)); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+":"); ok {
			return value
		}
	}
	return ""
}
