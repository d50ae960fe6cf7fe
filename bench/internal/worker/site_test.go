package worker

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestASiteSeesTwoHolders(t *testing.T) {
	path := filepath.Join(t.TempDir(), "site")
	mine, err := CreateSite(path, 2)
	require.NoError(t, err)
	defer mine.Close()
	theirs, err := OpenSite(path) // as another process does
	require.NoError(t, err)
	defer theirs.Close()

	mine.Spot(0).Enter(1)
	theirs.Spot(1).Enter(2)
	assert.Zero(t, mine.Overlaps(), "two locks")
	theirs.Spot(0).Enter(3)
	assert.EqualValues(t, 1, mine.Overlaps())
	theirs.Spot(0).Leave(3)
	theirs.Spot(0).Enter(4)
	assert.EqualValues(t, 2, theirs.Overlaps(), "the first one is still inside")
	mine.Spot(0).Leave(1)
	theirs.Spot(0).Enter(5)
	assert.EqualValues(t, 2, mine.Overlaps())
}
