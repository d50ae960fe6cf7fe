package fence_test

import (
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/fence"
	"github.com/relock-go/relock/fence/fencetest"
)

// A bucket keeps objects in memory. Its ETags are as S3's: the MD5 of what is stored, so that an object with the same body
// has the same ETag again.
type bucket struct {
	mu      sync.Mutex
	objects map[string][]byte // under mu
	broken  bool              // under mu
	puts    int               // under mu

	// Set before the bucket is used.
	beforePut func()
	afterPut  func() error // what a Put returns that has stored its object
}

func newBucket() *bucket {
	return &bucket{objects: map[string][]byte{}, beforePut: func() {}, afterPut: func() error { return nil }}
}

func (b *bucket) Get(_ context.Context, key string) (body []byte, etag string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.objects[key], b.etag(key), nil
}

// etag is called under mu.
func (b *bucket) etag(key string) string {
	body, ok := b.objects[key]
	if !ok {
		return ""
	}
	return fmt.Sprintf("%x", md5.Sum(body))
}

func (b *bucket) Put(_ context.Context, key string, body []byte, etag string) error {
	b.beforePut()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.broken {
		return errors.New("broken by the test")
	}
	if b.etag(key) != etag {
		return fmt.Errorf("412: %w", fence.ErrChanged)
	}
	b.objects[key] = body
	b.puts++
	return b.afterPut()
}

func (b *bucket) setBroken(broken bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.broken = broken
}

func TestObject(t *testing.T) {
	fencetest.Run(t, func(*testing.T) fencetest.Fixture {
		b := newBucket()
		return fencetest.Fixture{
			Open: func(testing.TB) fence.Resource { return fence.NewObject(b, "the object") },
			Break: func(testing.TB) func() {
				b.setBroken(true)
				return func() { b.setBroken(false) }
			},
		}
	})
}

// A holder got the object, and its Put arrives after a later holder has shown its token: the data are the same, and the
// ETag must be another.
func TestAPutOfAnEarlierHoldArrivesTooLate(t *testing.T) {
	b := newBucket()
	object := fence.NewObject(b, "o")
	require.NoError(t, object.Write(t.Context(), 7, []byte("data")))
	_, etag, err := b.Get(t.Context(), "o")
	require.NoError(t, err)
	_, err = object.Read(t.Context(), 8)
	require.NoError(t, err)
	require.ErrorIs(t, b.Put(t.Context(), "o", []byte("7\nlate"), etag), fence.ErrChanged)
}

// Between the two requests of a write a later holder has shown its token.
func TestAWriteThatIsOvertakenIsRefused(t *testing.T) {
	b := newBucket()
	object := fence.NewObject(b, "o")
	require.NoError(t, object.Write(t.Context(), 7, []byte("data")))
	b.beforePut = func() {
		b.beforePut = func() {}
		_, err := object.Read(t.Context(), 8)
		assert.NoError(t, err)
	}
	require.ErrorIs(t, object.Write(t.Context(), 7, []byte("late")), fence.ErrStale)
	data, err := object.Read(t.Context(), 8)
	require.NoError(t, err)
	assert.Equal(t, "data", string(data))
}

// An answer was lost, and the client has sent the request again, which found its own first copy: ErrChanged.
func TestAPutWhoseAnswerIsLostIsDoneOnce(t *testing.T) {
	b := newBucket()
	b.afterPut = func() error { return fence.ErrChanged }
	object := fence.NewObject(b, "o")
	require.NoError(t, object.Write(t.Context(), 7, []byte("data")))
	assert.Equal(t, 1, b.puts)
}

func TestAReadWithTheSameTokenPutsNothing(t *testing.T) {
	b := newBucket()
	object := fence.NewObject(b, "o")
	require.NoError(t, object.Write(t.Context(), 7, []byte("data")))
	for range 3 {
		data, err := object.Read(t.Context(), 7)
		require.NoError(t, err)
		assert.Equal(t, "data", string(data))
	}
	assert.Equal(t, 1, b.puts)
}

func TestAnObjectWithoutATokenIsAnError(t *testing.T) {
	for _, body := range []string{"", "data", "data\n", "\n", "-1\ndata"} {
		b := newBucket()
		require.NoError(t, b.Put(t.Context(), "o", []byte(body), ""))
		err := fence.NewObject(b, "o").Write(t.Context(), 7, nil)
		require.ErrorContains(t, err, "fence: write o: the object does not begin with a token")
		assert.Equal(t, 1, b.puts, "it stays as it is")
	}
}
