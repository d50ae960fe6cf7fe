package relockotel

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEveryResultIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/metrics.md")
	require.NoError(t, err)
	for r := range plain {
		assert.Contains(t, string(text), "\n| `"+string(r)+"` |")
	}
}
