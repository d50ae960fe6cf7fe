package goroutine

import (
	"testing"

	"github.com/petermattis/goid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGoroutineIDsAreChecked(t *testing.T) {
	require.NoError(t, CheckIDs())
	assert.ErrorContains(t, checkID(goid.Get()+1), "WithExplicitOwners", "a wrong id is refused")
}
