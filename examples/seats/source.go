package main

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/go-sql-driver/mysql"

	// The other two drivers, known to database/sql as "pgx" and "sqlite".
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"
)

// A source is a database to open.
type source struct {
	driver   string // for database/sql
	dsn      string // as the driver wants it
	shown    string // for people, without the password
	numbered bool   // parameters are $1, $2 … instead of ?
}

// parseSource reads what -dsn gives: mysql://… (or mariadb://…), postgres://… (or postgresql://…), or the path of a
// SQLite file.
func parseSource(dsn string) (source, error) {
	if !strings.Contains(dsn, "://") {
		return sqliteSource(dsn)
	}
	u, err := url.Parse(dsn)
	switch {
	case err != nil: // which repeats the URL, and so the password
		return source{}, errors.New("that is not a URL")
	case u.Host == "" || strings.Trim(u.Path, "/") == "":
		return source{}, fmt.Errorf("%s names no host or no database", u.Redacted())
	}
	switch u.Scheme {
	case "mysql", "mariadb":
		return mysqlSource(u)
	case "postgres", "postgresql":
		return source{driver: "pgx", dsn: dsn, shown: "PostgreSQL " + u.Redacted(), numbered: true}, nil
	}
	return source{}, fmt.Errorf("%s://…: there are mysql://, postgres:// and the path of a SQLite file", u.Scheme)
}

// sqliteSource opens a file that several processes write to: who finds it locked waits, and readers are not kept out.
func sqliteSource(path string) (source, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return source{}, fmt.Errorf("path of the SQLite file: %w", err)
	}
	settings := url.Values{"_pragma": {"busy_timeout(10000)", "journal_mode(WAL)"}}
	location := url.URL{Scheme: "file", Path: absolute, RawQuery: settings.Encode()}
	return source{driver: "sqlite", dsn: location.String(), shown: "SQLite " + absolute}, nil
}

func mysqlSource(u *url.URL) (source, error) {
	config := mysql.NewConfig()
	config.Net, config.Addr, config.User = "tcp", u.Host, u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.DBName = strings.Trim(u.Path, "/")
	// An UPDATE tells how many rows it found, as elsewhere, and not how many it changed.
	config.ClientFoundRows = true
	if u.Port() == "" {
		config.Addr += ":3306"
	}
	dsn := config.FormatDSN()
	if u.RawQuery != "" {
		dsn += "&" + u.RawQuery // after clientFoundRows
	}
	if _, err := mysql.ParseDSN(dsn); err != nil {
		return source{}, fmt.Errorf("%s: %w", u.Redacted(), err)
	}
	return source{driver: "mysql", dsn: dsn, shown: "MySQL " + u.Redacted()}, nil
}
