package explore

// mutate changes a script for the tests that must notice it: mutants_test.go, off in normal builds. mark is what it
// looks for.
var (
	mutate = func(text string) string { return text }
	mark   string
)
