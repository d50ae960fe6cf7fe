package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseSource(t *testing.T) {
	here, err := filepath.Abs(".")
	require.NoError(t, err)
	const pragmas = "?_pragma=busy_timeout%2830000%29&_pragma=journal_mode%28WAL%29&_pragma=synchronous%28OFF%29"
	for name, test := range map[string]struct{ dsn, dialect, driver, shown string }{
		"AbsolutePath":   {"/data/k.db", "SQLite", "file:///data/k.db" + pragmas, "/data/k.db"},
		"RelativePath":   {"k.db", "SQLite", "file://" + here + "/k.db" + pragmas, here + "/k.db"},
		"PathLikeURL":    {"/a:b/k?.db", "SQLite", "file:///a:b/k%3F.db" + pragmas, "/a:b/k?.db"},
		"SQLiteURL":      {"sqlite:///data/k.db", "SQLite", "file:///data/k.db" + pragmas, "/data/k.db"},
		"MySQL":          {"mysql://u:p@h:3307/d", "MySQL", "u:p@tcp(h:3307)/d", "mysql://u:xxxxx@h:3307/d"},
		"MariaDB":        {"mariadb://u@h/d", "MySQL", "u@tcp(h:3306)/d", "mariadb://u@h:3306/d"},
		"MySQLOdd":       {"mysql://u:%40%2F%3A@h/d", "MySQL", "u:@/:@tcp(h:3306)/d", "mysql://u:xxxxx@h:3306/d"},
		"MySQLSettings":  {"mysql://u@h/d?timeout=5s", "MySQL", "u@tcp(h:3306)/d?timeout=5s", "mysql://u@h:3306/d?timeout=5s"},
		"MySQLOverIPv6":  {"mysql://u@[::1]/d", "MySQL", "u@tcp([::1]:3306)/d", "mysql://u@[::1]:3306/d"},
		"MySQLDriver":    {"u:p@tcp(h:3307)/d", "MySQL", "u:p@tcp(h:3307)/d", "u:xxxxx@tcp(h:3307)/d"},
		"MySQLSocket":    {"u:p@unix(/run/m.sock)/d", "MySQL", "u:p@unix(/run/m.sock)/d", "u:xxxxx@unix(/run/m.sock)/d"},
		"SQLiteWithAt":   {"sqlite:///data/a@b.db", "SQLite", "file:///data/a@b.db" + pragmas, "/data/a@b.db"},
		"PostgreSQL":     {"postgres://u:p@h/d?sslmode=disable", "PostgreSQL", "postgres://u:p@h/d?sslmode=disable", "postgres://u:xxxxx@h/d?sslmode=disable"},
		"PostgreSQLLong": {"postgresql://h/d", "PostgreSQL", "postgresql://h/d", "postgresql://h/d"},
	} {
		t.Run(name, func(t *testing.T) {
			src, err := parseSource(test.dsn)
			require.NoError(t, err)
			assert.Equal(t, test.dialect, src.dialect.name)
			assert.Equal(t, test.driver, src.driver)
			assert.Equal(t, test.shown, src.shown)

			again, err := parseSource(src.url)
			require.NoError(t, err)
			assert.Equal(t, src, again, "a child must open the same database")
		})
	}
}

func TestParseSourceRefuses(t *testing.T) {
	for name, test := range map[string]struct{ dsn, want string }{
		"UnknownScheme":   {"oracle://u@h/d", "oracle://…: there are mysql://"},
		"EmptyPath":       {"sqlite://", "path of the SQLite file is empty"},
		"NoHost":          {"mysql:///d", "has no host"},
		"NoDatabase":      {"postgres://u:secret@h", "names no database"},
		"BrokenURL":       {"mysql://u:sec%ret@h/d", "URL of the database: "},
		"PortLikeURL":     {"mysql://u:p/secret@h/d", "URL of the database: "},
		"MySQLDriver":     {"user:secret@h/d", "user:password@tcp(host:port)/name"},
		"PostgreSQLWords": {"host=h password=secret", "postgres://"},
		"UnknownSettings": {"mysql://u@h/d?timeout=soon", "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseSource(test.dsn)
			require.ErrorContains(t, err, test.want)
			assert.NotContains(t, err.Error(), "secret", "an error must not show the password")
		})
	}
}

func TestDialectsQuoteTheColumnKey(t *testing.T) {
	const statement = `INSERT INTO t ("key", n) VALUES (?, ?)`
	assert.Equal(t, statement, sqliteDialect.sql(statement))
	assert.Equal(t, "INSERT INTO t (`key`, n) VALUES (?, ?)", mysqlDialect.sql(statement))
	assert.Equal(t, `INSERT INTO t ("key", n) VALUES ($1, $2)`, postgresDialect.sql(statement))
}
