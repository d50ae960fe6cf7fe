package relock_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// exampleFile has the program that the README shows. It is compiled and run as an Example.
const exampleFile = "reentrant/example_test.go"

func TestReadmeShowsTheExampleThatRuns(t *testing.T) {
	readme := read(t, "README.md")
	_, rest, found := strings.Cut(readme, "```go\n")
	require.True(t, found, "README.md has no Go program")
	shown, _, _ := strings.Cut(rest, "```\n")
	assert.Equal(t, function(t, exampleFile, "Example"), strings.TrimSpace(shown))
	assert.Less(t, strings.Count(shown, "\n"), 25, "the README's program is to be read at a glance")
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

// function gives the source of a function, comments included.
func function(t *testing.T, path, name string) string {
	t.Helper()
	files := token.NewFileSet()
	source := read(t, path)
	file, err := parser.ParseFile(files, path, source, parser.SkipObjectResolution)
	require.NoError(t, err)
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Name.Name == name {
			return source[files.Position(f.Type.Pos()).Offset:files.Position(f.End()).Offset]
		}
	}
	t.Fatalf("%s has no function %s", path, name)
	return ""
}

// read gives a file's text.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}
