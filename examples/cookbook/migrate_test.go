package cookbook

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/redisbackend/redistest"
)

var steps = []string{
	`CREATE TABLE people (name TEXT)`,
	`ALTER TABLE people ADD COLUMN age INTEGER`,
	`INSERT INTO people VALUES ('Ada', 36)`,
}

func TestASchemaIsMigratedOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	db := database(t, `CREATE TABLE schema_version (version INTEGER)`, `INSERT INTO schema_version VALUES (0)`)
	deploy := func(steps []string) {
		var all sync.WaitGroup
		gate := process(t, server)
		require.NoError(t, gate.NewLock("schema").Lock(t.Context()))
		for range 4 {
			lock := process(t, server).NewLock("schema")
			all.Go(func() { assert.NoError(t, Migrate(t.Context(), lock, db, steps)) })
		}
		waiting(t, gate, "schema", 4) // so that all of them begin at once
		require.NoError(t, gate.NewLock("schema").Unlock(t.Context()))
		all.Wait()
		assert.Equal(t, len(steps), number(t, db, `SELECT version FROM schema_version`))
	}
	deploy(steps[:2])
	deploy(steps)
	assert.Equal(t, 1, number(t, db, `SELECT count(*) FROM people`))
}

func TestAStepThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	lock := process(t, redistest.Start(t)).NewLock("schema")
	db := database(t, `CREATE TABLE schema_version (version INTEGER)`, `INSERT INTO schema_version VALUES (0)`)
	err := Migrate(t.Context(), lock, db, []string{steps[0], "BREAK"})
	require.ErrorContains(t, err, "migrate from version 1")
	assert.Equal(t, 1, number(t, db, `SELECT version FROM schema_version`))
	require.NoError(t, Migrate(t.Context(), lock, db, steps), "the next deployment goes on from there")
}

// A holder that has lost the lock without noticing gets an error if another process has migrated meanwhile.
func TestAStepThatAnotherTookIsRefused(t *testing.T) {
	t.Parallel()
	db := database(t, `CREATE TABLE schema_version (version INTEGER)`, `INSERT INTO schema_version VALUES (1)`)
	err := migrate(t.Context(), db, 0, steps[0])
	require.Error(t, err)
	assert.True(t, strings.Contains(err.Error(), "another process"), err)
	assert.Equal(t, 0, number(t, db, `SELECT count(*) FROM sqlite_master WHERE name = 'people'`))
}
