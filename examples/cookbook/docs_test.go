package cookbook

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../.."

// guides are the documents with snippets of this package, and of the examples that Go's own tools run. The Chinese README has
// the snippets of README.md.
var guides = []string{"README.md", "docs/cookbook.md", "docs/coming-from.md", "docs/testing.md"}

// Each snippet of a guide is part of a Go file, so it compiles. Only the indentation may differ.
func TestEverySnippetCompiles(t *testing.T) {
	sources := goFiles(t)
	for _, guide := range guides {
		snippets := fences(text(t, guide), "go")
		assert.NotEmpty(t, snippets, guide)
		for _, snippet := range snippets {
			assert.True(t, isIn(sources, snippet), "%s has a snippet that no Go file has:\n%s", guide, snippet)
		}
	}
}

func TestASnippetThatDiffersIsFound(t *testing.T) {
	sources := []string{lines("func f() {\n\tg()\n\th()\n}\n")}
	assert.True(t, isIn(sources, "g()\nh()"))
	assert.True(t, isIn(sources, "    g()\n"))
	assert.False(t, isIn(sources, "g()\n}"), "a line is missing")
	assert.False(t, isIn(sources, "g("), "half a line")
	assert.False(t, isIn(sources, ""), "nothing at all")
	assert.Equal(t, []string{"a\n", "b\n"}, fences("x\n```go\na\n```\n```\nc\n```\n```go\nb\n```\n", "go"))
}

// Names that a guide mentions in passing exist too: `lock.Verify(ctx)`, `reentrant.ErrLost`, `WithLease(d)`.
func TestEveryNameInPassingExists(t *testing.T) {
	ours := exported(t, ".", "reentrant", "redisbackend", "redisbackend/redistest", "backend", "backend/backendtest")
	span := regexp.MustCompile("`[^`\n]+`")
	name := regexp.MustCompile(`\b(?:lock|session|condition|both|reentrant|redisbackend|redistest|backendtest|server|relock)\.([A-Z]\w*)|(?:^|[^.\w])(With[A-Z]\w*)`)
	for _, guide := range guides[1:] {
		found := 0
		for _, code := range span.FindAllString(text(t, guide), -1) {
			for _, match := range name.FindAllStringSubmatch(code, -1) {
				found++
				assert.Contains(t, ours, match[1]+match[2], "%s: %s", guide, code)
			}
		}
		assert.Positive(t, found, "%s names nothing", guide)
	}
}

// The Chinese README has the same parts as README.md, with the same programs and links, and its own comments. Only README.md
// has measurements, which a program writes.
func TestTheChineseREADMEHasTheSameParts(t *testing.T) {
	english, chinese := withoutMeasurements(text(t, "README.md")), text(t, "README.zh-CN.md")
	assert.Equal(t, marks(prose(english), `(?m)^(#+) `), marks(prose(chinese), `(?m)^(#+) `), "headings")
	assert.Equal(t, codeOf(english), codeOf(chinese), "code")
	assert.Equal(t, marks(prose(english), `(?m)^(\||\* |\d+\. )`), marks(prose(chinese), `(?m)^(\||\* |\d+\. )`), "tables and lists")
	link := `\]\(([^)]+)\)`
	assert.ElementsMatch(t, elsewhere(marks(english, link)), elsewhere(marks(chinese, link)), "links")
	named := spans(chinese)
	for code := range spans(english) {
		assert.Contains(t, named, code, "README.zh-CN.md does not name it")
	}
}

// spans returns the code within the sentences of a text.
func spans(text string) map[string]bool {
	all := map[string]bool{}
	for _, code := range marks(prose(text), "`([^`]+)`") {
		all[strings.Join(strings.Fields(code), " ")] = true
	}
	return all
}

// withoutMeasurements returns a text without what is between the marks of the benchmark.
func withoutMeasurements(text string) string {
	return regexp.MustCompile(`(?s)<!-- bench:begin -->.*?<!-- bench:end -->`).ReplaceAllString(text, "")
}

// elsewhere removes the links between the two READMEs.
func elsewhere(links []string) (others []string) {
	for _, link := range links {
		if !strings.HasPrefix(link, "README") {
			others = append(others, link)
		}
	}
	return others
}

var codeFence = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")

// fences returns the code blocks of a language.
func fences(text, language string) (all []string) {
	for _, block := range codeFence.FindAllStringSubmatch(text, -1) {
		if block[1] == language {
			all = append(all, block[2])
		}
	}
	return all
}

var (
	comment = regexp.MustCompile(`(?m) *(//|#) .*$`)
	drawing = regexp.MustCompile(`[─│┌┐└┘◀▲▼\n]`)
)

// codeOf returns the code blocks without their comments, and of a picture only its lines.
func codeOf(text string) (all []string) {
	for _, block := range codeFence.FindAllString(text, -1) {
		if strings.Contains(block, "┌") {
			block = strings.Join(drawing.FindAllString(block, -1), "")
		}
		all = append(all, comment.ReplaceAllString(block, ""))
	}
	return all
}

func prose(text string) string { return codeFence.ReplaceAllString(text, "") }

// marks returns the first group of each match.
func marks(text, pattern string) (all []string) {
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		all = append(all, match[1])
	}
	return all
}

// isIn reports whether the lines of a snippet are consecutive lines of one of the sources.
func isIn(sources []string, snippet string) bool {
	snippet = lines(snippet)
	if strings.TrimSpace(snippet) == "" {
		return false
	}
	for _, source := range sources {
		if strings.Contains(source, snippet) {
			return true
		}
	}
	return false
}

// lines returns a text without indentation, with a line break before each line and after the last one.
func lines(text string) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	for i, line := range all {
		all[i] = strings.TrimSpace(line)
	}
	return "\n" + strings.Join(all, "\n") + "\n"
}

// goFiles returns all Go files of the project.
func goFiles(t *testing.T) (sources []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && entry.Name() == ".git" {
			return filepath.SkipDir
		}
		if filepath.Ext(path) == ".go" {
			source, err := os.ReadFile(path)
			sources = append(sources, lines(string(source)))
			return err
		}
		return nil
	}))
	return sources
}

// exported returns the names that packages export: of functions, methods, types, fields, constants and variables.
func exported(t *testing.T, folders ...string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, folder := range folders {
		paths, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
		require.NoError(t, err)
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			ast.Inspect(file, func(node ast.Node) bool {
				if name := declared(node); name != nil && name.IsExported() {
					names[name.Name] = true
				}
				return true
			})
		}
	}
	return names
}

// declared returns the name of a function or type, or the first name of a field, constant or variable.
func declared(node ast.Node) *ast.Ident {
	switch node := node.(type) {
	case *ast.FuncDecl:
		return node.Name
	case *ast.TypeSpec:
		return node.Name
	case *ast.ValueSpec:
		return node.Names[0]
	case *ast.Field:
		if len(node.Names) > 0 {
			return node.Names[0]
		}
	}
	return nil
}

func text(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	return string(content)
}
