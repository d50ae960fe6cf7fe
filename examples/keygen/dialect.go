package main

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/relock-go/relock/examples/internal/dsn"
)

// A dialect is what SQLite, MySQL and PostgreSQL do not agree on.
type dialect struct {
	name     string // for people
	driver   string // for database/sql
	quote    string // around the column key, whose name is a reserved word in MySQL
	numbered bool   // parameters are $1, $2 … instead of ?
	suffix   string // after a table's columns
}

var (
	sqliteDialect   = dialect{name: "SQLite", driver: "sqlite", quote: `"`}
	postgresDialect = dialect{name: "PostgreSQL", driver: "pgx", quote: `"`, numbered: true}
	// The engine is transactional, whatever the server's default is: other sessions must see either the whole effect of a
	// statement or nothing of it.
	mysqlDialect = dialect{name: "MySQL", driver: "mysql", quote: "`", suffix: " ENGINE=InnoDB"}
)

// sql translates a statement from SQLite's dialect into this one.
func (d dialect) sql(statement string) string {
	statement = strings.ReplaceAll(statement, `"`, d.quote)
	if !d.numbered {
		return statement
	}
	var b strings.Builder
	n := 0
	for _, r := range statement {
		if r != '?' {
			b.WriteRune(r)
			continue
		}
		n++
		b.WriteString("$" + strconv.Itoa(n))
	}
	return b.String()
}

// A source is a database to open: the dialect, and the driver's data source name.
type source struct {
	dialect dialect
	url     string // what parseSource reads, with nothing left open: a child is given this
	driver  string // the same in the driver's form
	shown   string // the same for people, without the password
}

// parseSource parses -dsn and -db: mysql://… (or mariadb://…), postgres://… (or postgresql://…), the data source
// name of Go's MySQL driver, or the path of a SQLite file, with or without sqlite:// before it.
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
	return source{}, fmt.Errorf("database %s://…: there are mysql://, postgres:// and the path of a SQLite file", scheme)
}

// sqliteSource opens a file that several processes write to.
func sqliteSource(path string) (source, error) {
	if path == "" {
		return source{}, errors.New("the path of the SQLite file is empty")
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return source{}, fmt.Errorf("path of the SQLite file: %w", err)
	}
	settings := url.Values{"_pragma": {
		// Wait for another process's statement instead of failing.
		"busy_timeout(30000)",
		// Readers and the writer do not shut each other out.
		"journal_mode(WAL)",
		// Do not wait for the disk: that would only matter if the machine lost power. The data of a killed process is
		// safe, because the operating system has it.
		"synchronous(OFF)",
	}}
	location := url.URL{Scheme: "file", Path: absolute, RawQuery: settings.Encode()}
	return source{dialect: sqliteDialect, url: "sqlite://" + absolute, driver: location.String(), shown: absolute}, nil
}

// mysqlDriverSource leaves a data source name to the MySQL driver.
func mysqlDriverSource(text string) (source, error) {
	config, err := dsn.ParseMySQL(text)
	if err != nil {
		return source{}, err
	}
	return source{dialect: mysqlDialect, url: text, driver: text, shown: dsn.Shown(config)}, nil
}

// mysqlSource turns a URL into the form that the MySQL driver reads. The query of the URL goes to the driver unchanged.
func mysqlSource(text string) (source, error) {
	u, err := dsn.ParseURL(text)
	if err != nil {
		return source{}, err
	}
	if u.Port() == "" {
		u.Host += ":3306"
	}
	config := mysql.NewConfig()
	config.Net = "tcp"
	config.Addr = u.Host
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.DBName = strings.TrimPrefix(u.Path, "/")
	driver := config.FormatDSN()
	if u.RawQuery != "" {
		separator := "?"
		if strings.Contains(driver, "?") {
			separator = "&"
		}
		driver += separator + u.RawQuery
	}
	if _, err := mysql.ParseDSN(driver); err != nil {
		return source{}, fmt.Errorf("database %s: %w", dsn.Redacted(u), err)
	}
	return source{dialect: mysqlDialect, url: text, driver: driver, shown: dsn.Redacted(u)}, nil
}

// postgresSource leaves the URL to the driver, which reads it as PostgreSQL's own tools do.
func postgresSource(text string) (source, error) {
	u, err := dsn.ParseURL(text)
	if err != nil {
		return source{}, err
	}
	return source{dialect: postgresDialect, url: text, driver: text, shown: dsn.Redacted(u)}, nil
}
