package reentrant

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestOwnerIsTheGoroutineUnlessTheContextNamesOne(t *testing.T) {
	mine := CurrentOwner(context.Background())
	assert.Equal(t, mine, CurrentOwner(context.Background()))
	assert.Regexp(t, `^\d+$`, mine.String())

	other := make(chan Owner)
	go func() { other <- CurrentOwner(context.Background()) }()
	assert.NotEqual(t, mine, <-other)

	named := WithOwner(context.Background(), "job 7")
	assert.Equal(t, "~job 7", CurrentOwner(named).String())
	go func() { other <- CurrentOwner(named) }()
	assert.Equal(t, CurrentOwner(named), <-other, "a name moves between goroutines")
	assert.Equal(t, "~inner", CurrentOwner(WithOwner(named, "inner")).String())
}

func TestOwnerNamedLikeAGoroutineIsAnother(t *testing.T) {
	mine := CurrentOwner(context.Background())
	named := CurrentOwner(WithOwner(context.Background(), mine.String()))
	assert.NotEqual(t, mine, named)
	assert.NotEqual(t, mine.String(), named.String())
}
