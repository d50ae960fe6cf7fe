package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"

	_ "modernc.org/sqlite" // known to database/sql as "sqlite"

	"github.com/relock-go/relock/fence"
	"github.com/relock-go/relock/reentrant"
)

// A state is the state of a turn. The states after running are those in which a turn has ended.
type state string

const (
	queued  state = "queued"
	running state = "running"
	done    state = "done"
	stopped state = "stopped" // another turn asked for it
	lost    state = "lost"    // its hold was lost before its steps were done
	failed  state = "failed"  // Redis or SQL failed
)

// conversations are the conversations on the page.
var conversations = []string{"A", "B", "C"}

// A turn is a row of the table turns.
type turn struct {
	Number       int    // in the order of arrival
	ID           string // the owner of the lock: only the replicas know it
	Conversation string
	Replica      int
}

// A store has the table of turns, and the conversations, whose highest tokens are in a table of their own. A turn writes to the
// conversation only under its hold. The turn's row in the table of turns only shows its progress.
type store struct {
	db     *sql.DB
	tokens *fence.Table
}

// openStore opens a SQLite file that several processes write to. A writer waits for other writers, and readers do not wait.
func openStore(ctx context.Context, path string) (*store, error) {
	settings := url.Values{"_pragma": {"busy_timeout(30000)", "journal_mode(WAL)", "synchronous(OFF)"}, "_txlock": {"immediate"}}
	location := url.URL{Scheme: "file", Path: path, RawQuery: settings.Encode()}
	db, err := sql.Open("sqlite", location.String())
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	db.SetMaxOpenConns(8)
	return &store{db, fence.NewTable(fence.SQLite, "tokens")}, db.PingContext(ctx)
}

// createStore makes the tables, and the conversations.
func createStore(ctx context.Context, path string) error {
	s, err := openStore(ctx, path)
	if err != nil {
		return err
	}
	err = s.exec(ctx, `CREATE TABLE turns (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL,
		conversation TEXT NOT NULL, replica INTEGER NOT NULL, state TEXT NOT NULL, token INTEGER NOT NULL DEFAULT 0,
		begun INTEGER NOT NULL DEFAULT 0, stop INTEGER NOT NULL DEFAULT 0)`)
	if err == nil {
		err = s.exec(ctx, `CREATE TABLE conversations (name TEXT NOT NULL PRIMARY KEY, content TEXT NOT NULL)`)
	}
	if err == nil {
		err = s.tokens.Create(ctx, s.db)
	}
	for _, name := range conversations {
		if err == nil {
			err = s.exec(ctx, `INSERT INTO conversations (name, content) VALUES (?, '[]')`, name)
		}
	}
	return errors.Join(err, s.db.Close())
}

func (s *store) exec(ctx context.Context, statement string, args ...any) error {
	if _, err := s.db.ExecContext(ctx, statement, args...); err != nil {
		return fmt.Errorf("write to the tables: %w", err)
	}
	return nil
}

// add stores a new turn. If stop is true, it asks the running turn to end early.
func (s *store) add(ctx context.Context, conversation string, replica int, stop bool) (turn, error) {
	t := turn{ID: rand.Text(), Conversation: conversation, Replica: replica}
	if stop { // first, so that the running turn finds the request when it is notified of the new turn
		err := s.exec(ctx, `UPDATE turns SET stop = 1 WHERE conversation = ? AND state = ?`, conversation, running)
		if err != nil {
			return t, err
		}
	}
	result, err := s.db.ExecContext(ctx, `INSERT INTO turns (id, conversation, replica, state) VALUES (?, ?, ?, ?)`,
		t.ID, conversation, replica, queued)
	if err != nil {
		return t, fmt.Errorf("add a turn: %w", err)
	}
	number, err := result.LastInsertId()
	t.Number = int(number)
	return t, err
}

// begin records that a turn runs, under a token. Earlier turns of the conversation that have not ended count as lost.
func (s *store) begin(ctx context.Context, t turn, token reentrant.Token) error {
	err := s.exec(ctx, `UPDATE turns SET state = ? WHERE conversation = ? AND state = ? AND token < ?`,
		lost, t.Conversation, running, int64(token))
	if err != nil {
		return err
	}
	return s.exec(ctx, `UPDATE turns SET state = ?, token = ?, begun = begun + 1 WHERE number = ?`, running, int64(token), t.Number)
}

// finish records how a turn has ended.
func (s *store) finish(ctx context.Context, t turn, how state) error {
	return s.exec(ctx, `UPDATE turns SET state = ? WHERE number = ?`, how, t.Number)
}

// askedToStop reports whether another turn has asked this one to stop.
func (s *store) askedToStop(ctx context.Context, t turn) (stop bool, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT stop FROM turns WHERE number = ?`, t.Number).Scan(&stop)
	return stop, err
}

// unfinished lists the turns that a replica has not yet ended, in the order of their arrival.
func (s *store) unfinished(ctx context.Context, replica int) (turns []turn, err error) {
	rows, err := s.db.QueryContext(ctx, `SELECT number, id, conversation, replica FROM turns
		WHERE replica = ? AND state IN (?, ?) ORDER BY number`, replica, queued, running)
	if err != nil {
		return nil, fmt.Errorf("list the turns: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var t turn
		if err := rows.Scan(&t.Number, &t.ID, &t.Conversation, &t.Replica); err != nil {
			return nil, fmt.Errorf("list the turns: %w", err)
		}
		turns = append(turns, t)
	}
	return turns, rows.Err()
}

// A lane is a conversation as the page shows it.
type lane struct {
	Name  string     `json:"name"`
	Turns []progress `json:"turns"` // the latest, in the order of arrival
}

// A progress is a turn as the page shows it.
type progress struct {
	Number  int    `json:"number"`
	Replica int    `json:"replica"`
	State   state  `json:"state"`
	Token   uint64 `json:"token,omitempty"`
	Begun   int    `json:"begun"` // more than once after a crash
	Steps   int    `json:"steps"` // the number of steps that are in the conversation
}

// shown is the number of turns that a lane shows.
const shown = 8

// lanes reads the data of the page.
func (s *store) lanes(ctx context.Context) ([]lane, error) {
	var lanes []lane
	for _, name := range conversations {
		turns, err := s.progress(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("read conversation %s: %w", name, err)
		}
		lanes = append(lanes, lane{name, turns})
	}
	return lanes, nil
}

func (s *store) progress(ctx context.Context, conversation string) ([]progress, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT number, replica, state, token, begun, (SELECT count(*)
			FROM conversations, json_each(content) AS said WHERE name = conversation AND said.value ->> 'Turn' = number)
		FROM (SELECT * FROM turns WHERE conversation = ? ORDER BY number DESC LIMIT ?) ORDER BY number`, conversation, shown)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	turns := []progress{}
	for rows.Next() {
		var p progress
		if err := rows.Scan(&p.Number, &p.Replica, &p.State, &p.Token, &p.Begun, &p.Steps); err != nil {
			return nil, err
		}
		turns = append(turns, p)
	}
	return turns, rows.Err()
}
