package relock_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// exampleFile is the program that the README shows. Its test runs it.
const exampleFile = "examples/hello/main.go"

func TestReadmeShowsTheExampleThatRuns(t *testing.T) {
	readme := read(t, "README.md")
	_, rest, found := strings.Cut(readme, "```go\n")
	require.True(t, found, "README.md has no Go program")
	shown, _, _ := strings.Cut(rest, "```\n")
	assert.Equal(t, read(t, exampleFile), shown)
	assert.Less(t, strings.Count(shown, "\n"), 35, "the README's program is to be read at a glance")
}

func TestReadmeIsShort(t *testing.T) {
	assert.LessOrEqual(t, strings.Count(read(t, "README.md"), "\n"), 180)
}

func TestReadmeNamesCommandsThatExist(t *testing.T) {
	firstScreen := strings.Join(strings.SplitN(read(t, "README.md"), "\n", 70)[:69], "\n")
	for _, command := range []string{"go run ./examples/keygen", "go test work"} {
		assert.Contains(t, firstScreen, command)
	}
	assert.FileExists(t, "examples/keygen/main.go")
	assert.FileExists(t, "go.work")
}

func TestLinksLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`)
	texts, err := filepath.Glob("*.md")
	require.NoError(t, err)
	more, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	decisions, err := filepath.Glob("docs/decisions/*.md")
	require.NoError(t, err)
	for _, text := range append(append(texts, more...), decisions...) {
		for _, match := range link.FindAllStringSubmatch(read(t, text), -1) {
			if target := match[1]; !strings.Contains(target, "://") {
				_, err := os.Stat(filepath.Join(filepath.Dir(text), target))
				assert.NoError(t, err, "%s links to %s", text, target)
			}
		}
	}
}

// read gives a file's text.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}
