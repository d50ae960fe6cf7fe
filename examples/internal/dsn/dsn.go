// Package dsn parses the flag -dsn of the examples, which names a database by its URL, by the data source name that
// Go's MySQL driver takes, or by the path of a SQLite file. No error and no text that it makes contains a password.
package dsn

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// A Kind is a way to name a database.
type Kind int

// The kinds. A file whose name looks like one of the others is named by sqlite://path.
const (
	File  Kind = iota // the path of a SQLite file
	URL               // scheme://…
	MySQL             // user:password@tcp(host:port)/name
)

var (
	hasScheme  = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9+.-]*://`)
	hasNetwork = regexp.MustCompile(`^(tcp|unix)\(.*\)/`)
	hasKeyword = regexp.MustCompile(`(^|\s)(host|user|password|dbname)\s*=`)
)

// hidden stands for a password in a text, as in [url.URL.Redacted].
const hidden = "xxxxx"

// KindOf reports how text names a database. It returns an error for PostgreSQL's settings (host=… password=…), which
// no example takes.
func KindOf(text string) (Kind, error) {
	switch {
	case hasScheme.MatchString(text):
		return URL, nil
	case strings.Contains(text, "@"), hasNetwork.MatchString(text):
		return MySQL, nil
	case hasKeyword.MatchString(text):
		return File, errors.New("settings of PostgreSQL (host=…): write postgres://user:password@host/name")
	}
	return File, nil
}

// ParseMySQL reads user:password@tcp(host:port)/name, and what may follow.
func ParseMySQL(text string) (*mysql.Config, error) {
	config, err := mysql.ParseDSN(text)
	if err != nil { // the driver's error may repeat a part of the text
		return nil, errors.New("not a data source name of the MySQL driver, user:password@tcp(host:port)/name " +
			"(a SQLite file with an @ in its name is sqlite://path)")
	}
	if config.DBName == "" {
		return nil, fmt.Errorf("%s names no database", Shown(config))
	}
	return config, nil
}

// Shown returns a data source name for display, without the password.
func Shown(config *mysql.Config) string {
	shown := config.Clone()
	if shown.Passwd != "" {
		shown.Passwd = hidden
	}
	return shown.FormatDSN()
}

// ParseURL reads the URL of a server's database.
func ParseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil { // which repeats the URL, or the part that is wrong
		return nil, errors.New("URL of the database: not a URL; in a password, write @ : / and % as %40 %3A %2F and %25")
	}
	if u.Host == "" {
		return nil, fmt.Errorf("URL of the database %s has no host", Redacted(u))
	}
	if strings.Trim(u.Path, "/") == "" {
		return nil, fmt.Errorf("URL of the database %s names no database", Redacted(u))
	}
	return u, nil
}

// Redacted returns a URL for display. It contains no password, even if the password is one of the URL's settings.
func Redacted(u *url.URL) string {
	settings := u.Query()
	for _, name := range []string{"password", "sslpassword"} {
		if settings.Has(name) {
			settings.Set(name, hidden)
			shown := *u
			shown.RawQuery = settings.Encode()
			u = &shown
		}
	}
	return u.Redacted()
}
