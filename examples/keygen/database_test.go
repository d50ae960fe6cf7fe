package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// openSQLite makes the tables in a file of the test's own.
func openSQLite(t *testing.T) *database {
	t.Helper()
	src, err := sqliteSource(filepath.Join(t.TempDir(), "keygen.db"))
	require.NoError(t, err)
	d, err := openDatabase(t.Context(), src, 2)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.close()) })
	require.NoError(t, d.recreate(t.Context()))
	require.NoError(t, d.prepare(t.Context()))
	return d
}

func TestDatabaseStartsAtOne(t *testing.T) {
	d := openSQLite(t)
	next, recorded, err := d.read(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 1, next)
	assert.True(t, recorded, "before the first number no record can be missing")
	records, err := d.records(t.Context())
	require.NoError(t, err)
	assert.Empty(t, records)
}

func TestDatabaseMissesARecord(t *testing.T) {
	d := openSQLite(t)
	require.NoError(t, d.raise(t.Context(), 2))
	next, recorded, err := d.read(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 2, next)
	assert.False(t, recorded)

	require.NoError(t, d.record(t.Context(), record{key: 1, server: "p1", owner: "7", token: 100}))
	_, recorded, err = d.read(t.Context())
	require.NoError(t, err)
	assert.True(t, recorded)
}

func TestDatabaseShowsDuplicates(t *testing.T) {
	d := openSQLite(t)
	want := []record{{1, "p1", "7", 100}, {2, "p1", "8", 102}, {2, "p2", "7", 103}}
	for _, i := range []int{2, 0, 1} {
		require.NoError(t, d.record(t.Context(), want[i]))
	}
	records, err := d.records(t.Context())
	require.NoError(t, err)
	assert.Equal(t, want, records)

	require.NoError(t, d.recreate(t.Context()))
	records, err = d.records(t.Context())
	require.NoError(t, err)
	assert.Empty(t, records, "recreate makes the tables anew")
}
