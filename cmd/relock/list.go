package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/reentrant"
)

// listCommand is `relock list`.
type listCommand struct {
	Pattern string `arg:"" optional:"" default:"*" help:"Only locks with such names: * stands for any characters, ? for one, [a-z] for one of these. Quote it for the shell."`
	All     bool   `help:"Also those that are free and were used in the last minutes."`
	asJSON
}

// Help is shown by --help.
func (c *listCommand) Help() string {
	return `Examples:
  relock list
  relock list 'deploy-*' --json
  relock list --prefix app: --all`
}

// Run finds the locks by their records, looks at each, and prints those that are in use.
func (c *listCommand) Run(s *server, std *streams) error {
	ctx := context.Background()
	session, done, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer done()
	names, err := s.names(ctx, c.Pattern)
	if err != nil {
		return err
	}
	seen, err := lookAtAll(ctx, session, names)
	if err != nil {
		return err
	}
	var locks []status
	for _, s := range seen {
		if c.All || s.Locked || len(s.Waiting) > 0 {
			locks = append(locks, s)
		}
	}
	if len(locks) == 0 {
		c.sayEmpty(s.Prefix, std.err)
	}
	return c.print(locks, std.out)
}

// lookAtAll asks Redis for the states of locks, patiently, many at once. It leaves out names whose keys are something else now.
func lookAtAll(ctx context.Context, session *reentrant.Session, names []string) (seen []status, err error) {
	const atOnce = 1000
	for some := range slices.Chunk(names, atOnce) {
		var states []reentrant.State
		err := patiently(func() (err error) {
			states, err = session.InspectAll(ctx, some...)
			return err
		})
		switch {
		case errors.Is(err, reentrant.ErrWrongKind) && len(some) > 1: // one of them
			for _, half := range [][]string{some[:len(some)/2], some[len(some)/2:]} {
				part, err := lookAtAll(ctx, session, half)
				if err != nil {
					return nil, err
				}
				seen = append(seen, part...)
			}
		case errors.Is(err, reentrant.ErrWrongKind):
			if seen, err = appendShared(ctx, session, seen, some[0]); err != nil {
				return nil, err
			}
		case err != nil:
			return nil, err
		}
		for i, st := range states {
			seen = append(seen, newStatus(some[i], st))
		}
	}
	return seen, nil
}

// appendShared adds the state of a name that is no Lock's: a shared one, or a key that is something else now, which is left out.
func appendShared(ctx context.Context, session *reentrant.Session, seen []status, name string) ([]status, error) {
	var st status
	err := patiently(func() (err error) {
		st, err = statusOf(ctx, session, name)
		return err
	})
	switch {
	case errors.Is(err, reentrant.ErrWrongKind):
		return seen, nil
	case err != nil:
		return nil, err
	}
	return append(seen, st), nil
}

// sayEmpty says what was looked for, and where.
func (c *listCommand) sayEmpty(prefix string, w io.Writer) {
	what, use := "no lock", "is held or waited for"
	if c.Pattern != "*" {
		what += fmt.Sprintf(" named like %q", c.Pattern)
	}
	if c.All {
		use = "was used lately"
	}
	fmt.Fprintf(w, "relock: %s %s with the prefix %q (--prefix or RELOCK_PREFIX)\n", what, use, prefix)
}

func (c *listCommand) print(locks []status, w io.Writer) error {
	if c.JSON {
		for _, s := range locks {
			if err := printJSON(w, s); err != nil {
				return err
			}
		}
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	noted := slices.ContainsFunc(locks, func(s status) bool { return s.Note != "" })
	title := ""
	if noted {
		title = "\tNOTE"
	}
	fmt.Fprintln(table, "NAME\tOWNER\tSESSION\tHOLDS\tLEASE\tTOKEN\tWAITING"+title)
	for _, s := range locks {
		owner, session := s.holder()
		note := ""
		if s.Note != "" {
			note = "\t" + shown(s.Note)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%d\t%d%s\n", shown(s.Name), owner, session, s.Holds, s.lease(), s.Token, len(s.Waiting), note)
	}
	return table.Flush()
}

// names are the locks that have a record, sorted. A record lives longer than what it is about, and its key is like no
// other's; a hash that has a lock's form may be anybody's.
func (s *server) names(ctx context.Context, pattern string) ([]string, error) {
	client, err := s.client()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var names []string
	for _, node := range client.Nodes() { // of a Cluster all, replicas too: they have the same
		if names, err = scan(ctx, node, s.Prefix, pattern, names); err != nil {
			return nil, fmt.Errorf("look for locks: %w", err)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// scan adds the names of the locks on a node.
func scan(ctx context.Context, node rueidis.Client, prefix, pattern string, names []string) ([]string, error) {
	const batch = 1000
	keys := globEscape.Replace(prefix) + sideKeys + "{*}:t:" + pattern
	for cursor := uint64(0); ; {
		page, err := node.Do(ctx, node.B().Scan().Cursor(cursor).Match(keys).Count(batch).Build()).AsScanEntry()
		if err != nil {
			return names, err
		}
		for _, key := range page.Elements {
			if name, ok := lockOfRecord(prefix, key); ok {
				names = append(names, name)
			}
		}
		if cursor = page.Cursor; cursor == 0 {
			return names, nil
		}
	}
}

var globEscape = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// sideKeys is what stands behind the prefix in all keys of a lock but the lock itself.
const sideKeys = "relock:"

// lockOfRecord is the lock whose record has a key:
//
//	<prefix>relock:{T}:t:N
//
// where T is what Redis hashes of <prefix>N. T has no closing brace. The lock that has a read-write lock's conditions is left
// out: it is part of that one.
func lockOfRecord(prefix, key string) (name string, ok bool) {
	rest, ok := strings.CutPrefix(key, prefix+sideKeys+"{")
	if !ok {
		return "", false
	}
	tag, rest, _ := strings.Cut(rest, "}")
	name, ok = strings.CutPrefix(rest, ":t:")
	conditions := strings.HasPrefix(name, backend.ConditionsPrefix)
	return name, ok && name != "" && !conditions && hashed(prefix+name) == tag
}

// hashed is the part of a key that decides its Cluster slot.
func hashed(key string) string {
	if _, after, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(after, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}
