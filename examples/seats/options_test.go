package main

import (
	"flag"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/fence"
)

func TestOptions(t *testing.T) {
	opts, err := parseOptions(nil, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, options{servers: 2, hold: 10 * time.Minute, payment: 2 * time.Second}, opts)

	opts, err = parseOptions([]string{"-hold=30s", "-payment=1m", "-port=8080", "-dsn=seats.db", "-redis=redis://r"}, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, options{servers: 2, port: 8080, hold: 30 * time.Second, payment: time.Minute, redis: "redis://r", dsn: "seats.db"}, opts)
	assert.Equal(t, 8081, opts.role(2, "").Port)

	for _, c := range []struct {
		arg, want string
	}{
		{"-hold=10ms", "-hold must be at least a second"},
		{"-payment=-1s", "-payment cannot be negative"},
		{"-port=65535", "no ports from 65535 to 65536"},
		{"-port=-1", "no ports from -1"},
		{"-dsn=oracle://u:secret@h/d", "-dsn: oracle://…: there are"},
		{"extra", `unexpected argument "extra"`},
	} {
		_, err := parseOptions([]string{c.arg}, io.Discard)
		assert.ErrorContains(t, err, c.want)
		assert.NotContains(t, err.Error(), "secret")
	}
	_, err = parseOptions([]string{"-help"}, io.Discard)
	assert.ErrorIs(t, err, flag.ErrHelp)
}

func TestDatabaseURLsAreParsed(t *testing.T) {
	src, err := parseSource("mariadb://user:p%40ss@db/cinema?tls=true")
	require.NoError(t, err)
	assert.Equal(t, source{
		dialect: fence.MySQL, driver: "mysql", dsn: "user:p@ss@tcp(db:3306)/cinema?clientFoundRows=true&tls=true",
		shown: "MySQL mariadb://user:xxxxx@db/cinema?tls=true",
	}, src)

	src, err = parseSource("postgres://user:secret@db/cinema")
	require.NoError(t, err)
	assert.Equal(t, source{
		dialect: fence.Postgres, driver: "pgx", dsn: "postgres://user:secret@db/cinema", shown: "PostgreSQL postgres://user:xxxxx@db/cinema",
	}, src)

	src, err = parseSource("/tmp/with space.db")
	require.NoError(t, err)
	assert.Equal(t, "file:///tmp/with%20space.db?_pragma=busy_timeout%2810000%29&_pragma=journal_mode%28WAL%29", src.dsn)

	src, err = parseSource("user:secret@tcp(db)/cinema")
	require.NoError(t, err)
	assert.Equal(t, source{
		dialect: fence.MySQL, driver: "mysql", dsn: "user:secret@tcp(db:3306)/cinema?clientFoundRows=true", shown: "MySQL user:xxxxx@tcp(db:3306)/cinema",
	}, src)

	for _, dsn := range []string{"mysql:///cinema", "user:secret@db/cinema", "mysql://user:p/secret@db/cinema", "postgres://user:secret@db/", "mysql://user:secret@db:port/cinema", "mysql://user:secret@db/cinema?tls=%zz"} {
		_, err := parseSource(dsn)
		require.Error(t, err, dsn)
		assert.NotContains(t, err.Error(), "secret")
	}
}
