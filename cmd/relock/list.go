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
	Pattern string `arg:"" optional:"" default:"*" help:"Only locks whose names match: * matches any characters, ? one, [a-z] one of these. Quote it for the shell."`
	All     bool   `help:"Also locks that are free and were used in the last minutes."`
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
	session, done, err := s.openWithin(ctx, nil)
	if err != nil {
		return err
	}
	defer done()
	names, err := s.names(ctx, c.Pattern)
	if err != nil {
		return err
	}
	seen, err := s.lookAtAll(ctx, session, names, std.err)
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
	findCycles(locks)
	if err := c.print(locks, std.out); err != nil {
		return err
	}
	sayCycles(locks, std.err)
	return nil
}

// lookAtAll reads the states of locks, many at once, and tries again if Redis does not reply. It leaves out names that cannot
// be read, and prints them on w: a key may have something that is no lock.
func (s *server) lookAtAll(ctx context.Context, session *reentrant.Session, names []string, w io.Writer) (seen []status, err error) {
	const atOnce = 1000
	for some := range slices.Chunk(names, atOnce) {
		var states []reentrant.State
		err := s.patiently(ctx, func(ctx context.Context) (err error) {
			states, err = session.InspectAll(ctx, some...)
			return err
		})
		if err != nil {
			return nil, err
		}
		for i, st := range states {
			look, err := newStatus(some[i], st), st.Err
			if errors.Is(err, reentrant.ErrWrongKind) { // it may be a shared name
				err = s.patiently(ctx, func(ctx context.Context) (err error) {
					look, err = statusOf(ctx, session, some[i])
					return err
				})
			}
			switch {
			case err == nil:
				seen = append(seen, look)
			case st.Err != nil && !errors.Is(err, reentrant.ErrUnavailable):
				fmt.Fprintf(w, "relock: left out: %s\n", short(words(err)))
			default:
				return nil, err
			}
		}
	}
	return seen, nil
}

// short returns a text without its middle if it is long, for instance because it has a name of thousands of bytes.
func short(text string) string {
	const part = 150
	if len(text) <= 2*part {
		return text
	}
	return strings.ToValidUTF8(text[:part]+"…"+text[len(text)-part:], "")
}

// sayEmpty prints that no lock was found, with the pattern and the prefix.
func (c *listCommand) sayEmpty(prefix string, w io.Writer) {
	what, use := "no lock", "is held or waited for"
	if c.Pattern != "*" {
		what += fmt.Sprintf(" named like %q", loginWithSpaces.ReplaceAllString(c.Pattern, "://…@")) // a URL, if --redis was forgotten
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
	noted := slices.ContainsFunc(locks, func(s status) bool { return s.note() != "" })
	title := ""
	if noted {
		title = "\tNOTE"
	}
	fmt.Fprintln(table, "NAME\tOWNER\tSESSION\tHELD\tHOLDS\tLEASE\tTOKEN\tWAITING"+title)
	for _, s := range locks {
		owner, session := s.holder()
		note := ""
		if noted := s.note(); noted != "" {
			note = "\t" + noted
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%s\t%d\t%d%s\n", shown(s.Name), owner, session, s.heldFor(), s.Holds, s.lease(), s.Token, len(s.Waiting), note)
	}
	return table.Flush()
}

// names returns the names of the locks that have a record, sorted. It looks for records because they outlive the holds
// and have keys that no other program uses, while a hash in the form of a lock may belong to another program.
func (s *server) names(ctx context.Context, pattern string) ([]string, error) {
	client, err := s.client()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var names []string
	for _, node := range client.Nodes() { // in a Cluster all nodes, replicas too: they have the same keys
		if names, err = s.scan(ctx, node, pattern, names); err != nil {
			return nil, fmt.Errorf("look for locks: %w", err)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// scan appends the names of the locks on a node.
func (s *server) scan(ctx context.Context, node rueidis.Client, pattern string, names []string) ([]string, error) {
	const batch = 1000
	keys := globEscape.Replace(s.Prefix) + sideKeys + "{*}:t:" + pattern
	for cursor := uint64(0); ; {
		var page rueidis.ScanEntry
		err := within(ctx, s.patience(), func(ctx context.Context) (err error) { // the client itself would ask again for ever
			page, err = node.Do(ctx, node.B().Scan().Cursor(cursor).Match(keys).Count(batch).Build()).AsScanEntry()
			return err
		})
		if err != nil {
			return names, err
		}
		for _, key := range page.Elements {
			if name, ok := lockOfRecord(s.Prefix, key); ok {
				names = append(names, name)
			}
		}
		if cursor = page.Cursor; cursor == 0 {
			return names, nil
		}
	}
}

var globEscape = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// sideKeys follows the prefix in all keys of a lock except the hold.
const sideKeys = "relock:"

// lockOfRecord returns the lock whose record has a key:
//
//	<prefix>relock:{T}:t:N
//
// where T is the part of <prefix>N that Redis hashes. T has no closing brace. The lock for the conditions of a
// read-write lock is left out: it is part of the read-write lock.
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

// hashed returns the part of a key that decides its Cluster slot.
func hashed(key string) string {
	if _, after, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(after, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}
