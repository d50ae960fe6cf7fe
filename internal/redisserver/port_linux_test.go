package redisserver

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Else a test that has stopped its server may talk to the server of another test.
func TestAStoppedServerKeepsItsPort(t *testing.T) {
	t.Parallel()
	s := Start(t)
	number := s.kept[0].number
	s.Stop()
	_, err := reserve(number)
	require.Error(t, err, "the port is not free")
	s.Restart(t)
	s.Stop()
	_, err = reserve(number)
	require.Error(t, err, "nor after another stop")
	s.giveBack()
	again, err := reserve(number)
	require.NoError(t, err)
	assert.Equal(t, number, again.number)
	again.close()
}
