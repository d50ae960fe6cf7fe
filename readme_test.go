package relock_test

import (
	"io/fs"
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
	link := regexp.MustCompile(`\]\(([^)#]*)(#[^)]*)?\)`)
	texts, err := filepath.Glob("*.md")
	require.NoError(t, err)
	more, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	decisions, err := filepath.Glob("docs/decisions/*.md")
	require.NoError(t, err)
	for _, text := range append(append(texts, more...), decisions...) {
		for _, match := range link.FindAllStringSubmatch(read(t, text), -1) {
			if target := match[1]; !strings.Contains(target, "://") {
				path := text
				if target != "" {
					path = filepath.Join(filepath.Dir(text), target)
				}
				_, err := os.Stat(path)
				assert.NoError(t, err, "%s links to %s", text, target)
				if match[2] != "" {
					assert.Contains(t, anchors(read(t, path)), match[2], "%s links to %s", text, target)
				}
			}
		}
	}
}

// Each decision has a date and a status below its title, and is in the index.
func TestEveryDecisionIsInTheIndex(t *testing.T) {
	index := read(t, "docs/decisions/README.md")
	decisions, err := filepath.Glob("docs/decisions/0*.md")
	require.NoError(t, err)
	require.NotEmpty(t, decisions)
	for _, path := range decisions {
		assert.Contains(t, index, "("+filepath.Base(path)+")")
		assert.Regexp(t, `\A# [0-9]+\. .+\n\n\*\d{4}-\d\d-\d\d, (accepted|refused|superseded)\b.*\.\*\n`, read(t, path), path)
	}
}

// anchors are the places of a page that a link can lead to, as GitHub makes them of its headings.
func anchors(page string) (all []string) {
	dropped := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(page, -1) {
		all = append(all, "#"+strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(heading[1]), ""), " ", "-"))
	}
	return all
}

// A document names only tests that exist. "TestHammer…" stands for all tests whose names begin so.
func TestTheDocumentsNameTestsThatExist(t *testing.T) {
	var declared strings.Builder
	require.NoError(t, filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			declared.WriteString(read(t, path))
		}
		return err
	}))
	pages, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	for _, page := range append(pages, "CONTRIBUTING.md") {
		for _, match := range regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w*)(…?)").FindAllStringSubmatch(read(t, page), -1) {
			call := "\nfunc " + match[1]
			if match[2] == "" {
				call += "("
			}
			assert.True(t, strings.Contains(declared.String(), call), "%s names %s", page, match[1])
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
