package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/bench/internal/worker"
)

// all is the units of a writer, and of a lock: more than there are readers.
const all = 1 << 31

func TestASiteSeesTwoHolders(t *testing.T) {
	path := filepath.Join(t.TempDir(), "site")
	mine, err := worker.CreateSite(path, 2)
	require.NoError(t, err)
	defer mine.Close()
	theirs, err := worker.OpenSite(path) // as another process does
	require.NoError(t, err)
	defer theirs.Close()

	mine.Spot(0).Enter(all, all)
	theirs.Spot(1).Enter(all, all)
	assert.Zero(t, mine.Overlaps(), "two locks")
	theirs.Spot(0).Enter(all, all)
	assert.EqualValues(t, 1, mine.Overlaps())
	theirs.Spot(0).Leave(all)
	theirs.Spot(0).Enter(all, all)
	assert.EqualValues(t, 2, theirs.Overlaps(), "the first one is still inside")
	theirs.Spot(0).Leave(all)
	mine.Spot(0).Leave(all)
	theirs.Spot(0).Enter(all, all)
	assert.EqualValues(t, 2, mine.Overlaps())
}

func TestASiteSeesAReaderBesideAWriter(t *testing.T) {
	site, err := worker.CreateSite(filepath.Join(t.TempDir(), "site"), 1)
	require.NoError(t, err)
	defer site.Close()
	spot := site.Spot(0)
	spot.Enter(1, all)
	spot.Enter(1, all)
	assert.Zero(t, site.Overlaps(), "two readers")
	spot.Enter(all, all)
	assert.EqualValues(t, 1, site.Overlaps(), "a writer beside readers")
	spot.Leave(1)
	spot.Leave(1)
	spot.Enter(1, all)
	assert.EqualValues(t, 2, site.Overlaps(), "a reader beside a writer")
}

func TestASiteSeesMoreHoldersThanPermits(t *testing.T) {
	site, err := worker.CreateSite(filepath.Join(t.TempDir(), "site"), 1)
	require.NoError(t, err)
	defer site.Close()
	for range 3 {
		site.Spot(0).Enter(1, 3)
	}
	assert.Zero(t, site.Overlaps())
	site.Spot(0).Enter(1, 3)
	assert.EqualValues(t, 1, site.Overlaps())
}
