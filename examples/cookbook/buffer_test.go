package cookbook

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/redisbackend/redistest"
)

func TestWhatIsPutInIsTakenOutOnce(t *testing.T) {
	t.Parallel()
	const room, producers, each = 3, 2, 25
	server := redistest.Start(t)
	var all sync.WaitGroup
	for p := range producers {
		buffer := NewBuffer(process(t, server), server.Client(), "parcels", room)
		all.Go(func() {
			for i := range each {
				assert.NoError(t, buffer.Put(t.Context(), strconv.Itoa(p*each+i)))
				length, err := server.Client().Do(t.Context(), server.Client().B().Llen().Key("parcels").Build()).AsInt64()
				assert.NoError(t, err)
				assert.LessOrEqual(t, length, int64(room))
			}
		})
	}
	var taken [producers * each]atomic.Int64
	for range 2 {
		buffer := NewBuffer(process(t, server), server.Client(), "parcels", room)
		all.Go(func() {
			for range producers * each / 2 {
				item, err := buffer.Take(t.Context())
				if !assert.NoError(t, err) {
					return
				}
				n, err := strconv.Atoi(item)
				assert.NoError(t, err)
				taken[n].Add(1)
			}
		})
	}
	all.Wait()
	for item := range taken {
		require.EqualValues(t, 1, taken[item].Load(), "item %d", item)
	}
}
