package reentrant

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/relock-go/relock/reentrant/internal/core"
)

func TestOwnerIsTheGoroutineUnlessTheContextNamesOne(t *testing.T) {
	mine := core.CurrentOwner(context.Background())
	assert.Equal(t, mine, core.CurrentOwner(context.Background()))
	assert.Regexp(t, `^\d+$`, mine.String())

	other := make(chan Owner)
	go func() { other <- core.CurrentOwner(context.Background()) }()
	assert.NotEqual(t, mine, <-other)

	named := WithOwner(context.Background(), "job 7")
	assert.Equal(t, "~job 7", core.CurrentOwner(named).String())
	go func() { other <- core.CurrentOwner(named) }()
	assert.Equal(t, core.CurrentOwner(named), <-other, "a name moves between goroutines")
	assert.Equal(t, "~inner", core.CurrentOwner(WithOwner(named, "inner")).String())
}

func TestOwnerNamedLikeAGoroutineIsAnother(t *testing.T) {
	mine := core.CurrentOwner(context.Background())
	named := core.CurrentOwner(WithOwner(context.Background(), mine.String()))
	assert.NotEqual(t, mine, named)
	assert.NotEqual(t, mine.String(), named.String())
}
