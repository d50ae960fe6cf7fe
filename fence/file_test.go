//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package fence_test

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/fence"
	"github.com/relock-go/relock/fence/fencetest"
)

func TestFile(t *testing.T) {
	fencetest.Run(t, func(t *testing.T) fencetest.Fixture {
		path := filepath.Join(t.TempDir(), "file")
		return fencetest.Fixture{
			Open: func(testing.TB) fence.Resource { return fence.NewFile(path) },
			Break: func(t testing.TB) func() { // a folder is where the new file would be
				_ = os.Remove(path + ".new")
				require.NoError(t, os.Mkdir(path+".new", 0o700))
				return func() { require.NoError(t, os.Remove(path+".new")) }
			},
		}
	})
}

func TestACallWaitsForTheLockOfTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	other, err := os.Create(path + ".fence")
	require.NoError(t, err)
	defer func() { _ = other.Close() }()
	require.NoError(t, syscall.Flock(int(other.Fd()), syscall.LOCK_EX))
	file := fence.NewFile(path)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, file.Write(ctx, 7, nil), context.DeadlineExceeded)
	require.NoError(t, other.Close())
	require.NoError(t, file.Write(t.Context(), 6, nil), "the write that waited has shown nothing")
}

// A writer died after it had shown its token, and left its new file.
func TestWhatADeadWriterLeftIsWrittenOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	file := fence.NewFile(path)
	require.NoError(t, file.Write(t.Context(), 6, []byte("six")))
	_, err := file.Read(t.Context(), 7)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path+".new", []byte("half of seven and more"), 0o600))
	require.ErrorIs(t, file.Write(t.Context(), 6, []byte("late")), fence.ErrStale)
	require.NoError(t, file.Write(t.Context(), 8, []byte("eight")))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "eight", string(data))
	assert.NoFileExists(t, path+".new")
}

func TestAFileKeepsItsPermissions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Chmod(path, 0o640))
	require.NoError(t, fence.NewFile(path).Write(t.Context(), 7, []byte("data")))
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o640), info.Mode().Perm())
}

func TestATokenThatCannotBeReadIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path+".fence", []byte("17\n"), 0o600))
	err := fence.NewFile(path).Write(t.Context(), 18, nil)
	require.ErrorContains(t, err, "has no token")
	assert.NotErrorIs(t, err, fence.ErrStale)
	assert.NoFileExists(t, path)
}
