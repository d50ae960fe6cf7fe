package dsn

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestKinds(t *testing.T) {
	for text, want := range map[string]Kind{
		"k.db": File, "/data/k.db": File, "/a:b/k?.db": File, "tcp(h).db": File,
		"sqlite://a@b.db": URL, "mysql://u:p@h/d": URL, "postgres://h/d": URL,
		"user:pw@tcp(127.0.0.1:3306)/x": MySQL, "u@/x": MySQL, "u:p@unix(/run/m.sock)/x": MySQL, "tcp(h)/x": MySQL,
		"u:p://w@tcp(h)/x": MySQL, "u:secret@h": MySQL,
	} {
		kind, err := KindOf(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, kind, text)
	}
	_, err := KindOf("host=h password=secret dbname=d")
	require.ErrorContains(t, err, "postgres://")
	assert.NotContains(t, err.Error(), "secret")
}

func TestAPasswordIsNeverShown(t *testing.T) {
	config, err := ParseMySQL("user:secret@tcp(h)/x?timeout=5s")
	require.NoError(t, err)
	assert.Equal(t, "user:xxxxx@tcp(h:3306)/x?timeout=5s", Shown(config))
	assert.Equal(t, "secret", config.Passwd)

	u, err := ParseURL("postgres://u@h/d?password=secret&sslmode=disable")
	require.NoError(t, err)
	assert.Equal(t, "postgres://u@h/d?password=xxxxx&sslmode=disable", Redacted(u))

	for _, text := range []string{"u:secret@h", "u:secret@h/d", "u:p@secret/d", "u:secret@tcp(h/d", "u:secret@tcp(h:3306)/"} {
		_, err := ParseMySQL(text)
		require.Error(t, err, text)
		assert.NotContains(t, err.Error(), "secret", text)
	}
	for _, text := range []string{"mysql://u:p/secret@h/d", "mysql://u:%secret@h/d", "mysql://u:secret@h", "mysql://u:secret@/d"} {
		_, err := ParseURL(text)
		require.Error(t, err, text)
		assert.NotContains(t, err.Error(), "secret", text)
	}
}
