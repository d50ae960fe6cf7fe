package screen

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSharesOfAKilledProcessStandTogether(t *testing.T) {
	names := [][]string{{"p1"}, {"p2", "p2.2"}}
	assert.Equal(t, "p1 2, p2 1+0", Split(names, map[string]int64{"p1": 2, "p2": 1}))
}

func TestATableIsAligned(t *testing.T) {
	var out strings.Builder
	PrintTable(&out, []Row{{"keys", "20"}, {"duplicates", "0"}}, "All is well.")
	assert.Equal(t, "\nkeys         20\nduplicates   0\n\nAll is well.\n", out.String())
}
