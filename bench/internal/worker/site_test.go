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

	mine.Spot(0).Enter(whole, whole)
	theirs.Spot(1).Enter(whole, whole)
	assert.Zero(t, mine.Overlaps(), "two locks")
	theirs.Spot(0).Enter(whole, whole)
	assert.EqualValues(t, 1, mine.Overlaps())
	theirs.Spot(0).Leave(whole)
	theirs.Spot(0).Enter(whole, whole)
	assert.EqualValues(t, 2, theirs.Overlaps(), "the first one is still inside")
	theirs.Spot(0).Leave(whole)
	mine.Spot(0).Leave(whole)
	theirs.Spot(0).Enter(whole, whole)
	assert.EqualValues(t, 2, mine.Overlaps())
}

func TestASiteSeesAReaderBesideAWriter(t *testing.T) {
	site, err := CreateSite(filepath.Join(t.TempDir(), "site"), 1)
	require.NoError(t, err)
	defer site.Close()
	spot := site.Spot(0)
	spot.Enter(1, whole)
	spot.Enter(1, whole)
	assert.Zero(t, site.Overlaps(), "two readers")
	spot.Enter(whole, whole)
	assert.EqualValues(t, 1, site.Overlaps(), "a writer beside readers")
	spot.Leave(1)
	spot.Leave(1)
	spot.Enter(1, whole)
	assert.EqualValues(t, 2, site.Overlaps(), "a reader beside a writer")
}

func TestASiteSeesMoreHoldersThanPermits(t *testing.T) {
	site, err := CreateSite(filepath.Join(t.TempDir(), "site"), 1)
	require.NoError(t, err)
	defer site.Close()
	for range 3 {
		site.Spot(0).Enter(1, 3)
	}
	assert.Zero(t, site.Overlaps())
	site.Spot(0).Enter(1, 3)
	assert.EqualValues(t, 1, site.Overlaps())
}
