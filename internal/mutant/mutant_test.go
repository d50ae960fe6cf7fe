package mutant

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAFaultIsOneOfItsPackage(t *testing.T) {
	t.Setenv("RELOCK_MUTANT", "reentrant/credulous")
	assert.Equal(t, "credulous", Of("reentrant"))
	assert.Empty(t, Of("localqueue"))
	t.Setenv("RELOCK_MUTANT", "")
	assert.Empty(t, Of("reentrant"))
}
