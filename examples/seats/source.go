package main

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/go-sql-driver/mysql"

	// The other two drivers, known to database/sql as "pgx" and "sqlite".
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/relock-go/relock/examples/internal/dsn"
	"github.com/relock-go/relock/fence"
)

// A source is a database to open.
type source struct {
	dialect fence.Dialect
	driver  string // for database/sql
	dsn     string // as the driver wants it
	shown   string // for people, without the password
}

// parseSource parses -dsn: mysql://… (or mariadb://…), postgres://… (or postgresql://…), the data source name of
// Go's MySQL driver, or the path of a SQLite file, with or without sqlite:// before it.
func parseSource(text string) (source, error) {
	switch kind, err := dsn.KindOf(text); {
	case err != nil:
		return source{}, err
	case kind == dsn.File:
		return sqliteSource(text)
	case kind == dsn.MySQL:
		return mysqlDriverSource(text)
	}
	scheme, rest, _ := strings.Cut(text, "://")
	switch scheme {
	case "sqlite":
		return sqliteSource(rest)
	case "mysql", "mariadb":
		return mysqlSource(text)
	case "postgres", "postgresql":
		return postgresSource(text)
	}
	return source{}, fmt.Errorf("%s://…: there are mysql://, postgres:// and the path of a SQLite file", scheme)
}

// sqliteSource opens a file that several processes write to. A writer that finds the file locked waits, and readers do not
// wait.
func sqliteSource(path string) (source, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return source{}, fmt.Errorf("path of the SQLite file: %w", err)
	}
	settings := url.Values{"_pragma": {"busy_timeout(10000)", "journal_mode(WAL)"}}
	location := url.URL{Scheme: "file", Path: absolute, RawQuery: settings.Encode()}
	return source{dialect: fence.SQLite, driver: "sqlite", dsn: location.String(), shown: "SQLite " + absolute}, nil
}

// mysqlDriverSource leaves a data source name to the MySQL driver.
func mysqlDriverSource(text string) (source, error) {
	config, err := dsn.ParseMySQL(text)
	if err != nil {
		return source{}, err
	}
	shown := "MySQL " + dsn.Shown(config)
	config.ClientFoundRows = true // see mysqlSource
	return source{dialect: fence.MySQL, driver: "mysql", dsn: config.FormatDSN(), shown: shown}, nil
}

// postgresSource leaves the URL to the driver, which reads it as PostgreSQL's own tools do.
func postgresSource(text string) (source, error) {
	u, err := dsn.ParseURL(text)
	if err != nil {
		return source{}, err
	}
	return source{dialect: fence.Postgres, driver: "pgx", dsn: text, shown: "PostgreSQL " + dsn.Redacted(u)}, nil
}

// mysqlSource turns a URL into the form that the MySQL driver reads. The query of the URL goes to the driver unchanged.
func mysqlSource(text string) (source, error) {
	u, err := dsn.ParseURL(text)
	if err != nil {
		return source{}, err
	}
	config := mysql.NewConfig()
	config.Net, config.Addr, config.User = "tcp", u.Host, u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.DBName = strings.Trim(u.Path, "/")
	// An UPDATE reports how many rows it found, as with the other databases, and not how many rows it changed.
	config.ClientFoundRows = true
	if u.Port() == "" {
		config.Addr += ":3306"
	}
	driver := config.FormatDSN()
	if u.RawQuery != "" {
		driver += "&" + u.RawQuery // after clientFoundRows
	}
	if _, err := mysql.ParseDSN(driver); err != nil {
		return source{}, fmt.Errorf("%s: %w", dsn.Redacted(u), err)
	}
	return source{dialect: fence.MySQL, driver: "mysql", dsn: driver, shown: "MySQL " + dsn.Redacted(u)}, nil
}
