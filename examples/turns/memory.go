package main

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/relock-go/relock/reentrant"
)

// A line is what a step of a turn added to the conversation.
type line struct{ Turn, Step int }

// A memory is a conversation. Each of its transactions first shows the token of a hold. From then on the transactions of
// earlier holds are refused with fence.ErrStale, however late they come.
type memory struct {
	store        *store
	conversation string
}

// memory returns a conversation.
func (s *store) memory(conversation string) memory { return memory{s, conversation} }

// read returns what was said so far.
func (m memory) read(ctx context.Context, token reentrant.Token) (said []line, err error) {
	err = m.store.tokens.Do(ctx, m.store.db, m.conversation, token, func(tx *sql.Tx) error {
		var text []byte
		err := tx.QueryRowContext(ctx, `SELECT content FROM conversations WHERE name = ?`, m.conversation).Scan(&text)
		if err != nil {
			return err
		}
		return json.Unmarshal(text, &said)
	})
	return said, err
}

// write sets what was said so far.
func (m memory) write(ctx context.Context, token reentrant.Token, said []line) error {
	text, err := json.Marshal(said)
	if err != nil {
		return err
	}
	return m.store.tokens.Do(ctx, m.store.db, m.conversation, token, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE conversations SET content = ? WHERE name = ?`, string(text), m.conversation)
		return err
	})
}
