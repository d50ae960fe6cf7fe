package redisbackend

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// FuzzURLsAreNotQuoted checks that an error about a URL never contains the password, wherever in the URL the password is.
func FuzzURLsAreNotQuoted(f *testing.F) {
	const secret = "hunter2"
	forms := []string{"redis://:%@127.0.0.1:1", "redis://user:%@127.0.0.1:1/0", "rediss://%@127.0.0.1:1", "redis://u:%@127.0.0.1:port",
		"redis://u:p@127.0.0.1:1/%", "redis://u:p@127.0.0.1:1/0?db=%", "unix://u:%@/nowhere", "http://u:%@x", "%", "redis:%", "redis://u:%@[::1",
		"redis://127.0.0.1:1?password=%&db=x", "redis://127.0.0.1:1?addr=u:%@127.0.0.1:1", "redis://u:p@127.0.0.1:1?write_timeout=%",
		"redis://u:p@127.0.0.1:1?dial_timeout=%", "rediss://u:p@127.0.0.1:1?skip_verify=%", "redis://u:p@127.0.0.1:1?master_set=%"}
	for i := range forms {
		for _, around := range []string{"", "/", "#", "?", "%zz", "@", ":", "\n", "\x00", " ", "%2F", "[", "&db=", "é"} {
			f.Add(uint8(i), around, around)
		}
	}
	ended, cancel := context.WithCancel(context.Background()) // so that no connection is made
	cancel()
	f.Fuzz(func(t *testing.T, form uint8, before, after string) {
		for _, password := range []string{before + secret + after, url.QueryEscape(before + secret + after)} {
			address := strings.Replace(forms[int(form)%len(forms)], "%", password, 1)
			_, err := Open(ended, address)
			if err == nil {
				t.Fatal("opened")
			}
			assert.NotContains(t, err.Error(), secret, "%q", address)
		}
	})
}
