package backend

import (
	"fmt"
	"os"
	"strings"
)

// MaxSessionName is the maximal number of bytes in the name of a session.
const MaxSessionName = 48

// ProcessName returns the default name of this process's sessions and connections: the host's name and the process id, as
// in web-4711.
func ProcessName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	pid := fmt.Sprintf("-%d", os.Getpid())
	host = PlainName(host)
	return host[:min(len(host), MaxSessionName-len(pid))] + pid
}

// PlainName makes a text the name of a session: it keeps letters, digits, hyphens, underscores and dots, puts hyphens
// in place of all else, and cuts the text after MaxSessionName bytes.
func PlainName(text string) string {
	plain := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '-'
	}, text)
	return plain[:min(len(plain), MaxSessionName)]
}
