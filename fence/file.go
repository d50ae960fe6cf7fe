//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package fence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A File is data in a file of a local file system, with a second file beside it whose name ends in ".fence". The second file
// has the highest token, and each call locks it (flock). So the check and the write are one step for all programs of the
// machine that use a File. The lock ends with the process that has it.
//
// A program that opens the file without a File is not refused. It may read the file at any time, and finds all of a
// write or nothing of it: the file is replaced by renaming. Write keeps the permissions of the file, but neither its owner
// nor links to it. If the second file is removed the token is forgotten. Do not use a File on a network file system: there
// the lock may be known to one machine only, or end unnoticed.
type File struct{ path string }

var _ Resource = (*File)(nil)

// NewFile returns the resource at a path. It opens nothing. The folder must exist.
func NewFile(path string) *File { return &File{path} }

// Read implements [Resource]. The token is on the disk when it returns.
func (f *File) Read(ctx context.Context, token Token) (data []byte, err error) {
	err = f.locked(ctx, token, func(seen seen) error {
		if err := seen.raise(token); err != nil {
			return err
		}
		data, err = os.ReadFile(f.path)
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		return err
	})
	return data, failed(ctx, "read", f.path, err)
}

// Write implements [Resource]. The token and the data are on the disk when it returns. A write that fails while the data
// are written to a new file, for want of space for example, shows no token; a write that fails or dies later may have shown
// its token.
func (f *File) Write(ctx context.Context, token Token, data []byte) error {
	err := f.locked(ctx, token, func(seen seen) error {
		next, err := f.prepare(data)
		if err != nil {
			return err
		}
		// The token before the data: otherwise, after a crash between the two, an older token could replace the data.
		if err := seen.raise(token); err != nil {
			return err
		}
		if err := os.Rename(next, f.path); err != nil {
			return err
		}
		return syncFolder(f.path)
	})
	return failed(ctx, "write", f.path, err)
}

// locked runs a step under the lock of the second file, if that file has no higher token.
func (f *File) locked(ctx context.Context, token Token, step func(seen seen) error) error {
	if err := begin(ctx, token); err != nil {
		return err
	}
	beside, err := os.OpenFile(f.path+".fence", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = beside.Close() }() // this unlocks the file too
	if err := lock(ctx, beside); err != nil {
		return err
	}
	seen, err := readSeen(beside)
	if err != nil {
		return err
	}
	if err := compare(f.path, token, seen.highest); err != nil {
		return err
	}
	return step(seen)
}

// lockEvery is the interval at which a call tries again to lock the file.
const lockEvery = time.Millisecond

// lock waits for the lock of an open file until ctx ends.
func lock(ctx context.Context, file *os.File) error {
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return err
		}
		select {
		case <-time.After(lockEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// prepare writes data to a new file beside the old one, with its permissions, and returns the path. A file that an
// earlier call left is written over: there is one writer at a time.
func (f *File) prepare(data []byte) (path string, err error) {
	mode := os.FileMode(0o600)
	if old, err := os.Stat(f.path); err == nil {
		mode = old.Mode().Perm()
	}
	path = f.path + ".new"
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return "", err
	}
	_, err = file.Write(data)
	return path, errors.Join(err, file.Chmod(mode), file.Sync(), file.Close())
}

// A seen is the second file, and the token in it.
type seen struct {
	file    *os.File
	highest Token
}

// digits is the length of a token in the file. It never changes, so a token is written over the last token in one piece.
const digits = 20

// readSeen reads the token; 0 if the file is new.
func readSeen(file *os.File) (seen, error) {
	text, err := io.ReadAll(file)
	if err != nil || len(text) == 0 {
		return seen{file, 0}, err
	}
	var highest Token
	if len(text) != digits+1 || highest.Scan(strings.TrimSpace(string(text))) != nil {
		return seen{}, fmt.Errorf("%s has no token", file.Name())
	}
	return seen{file, highest}, nil
}

// raise writes a higher token to the disk.
func (s seen) raise(token Token) error {
	if token == s.highest {
		return nil
	}
	if _, err := s.file.WriteAt(fmt.Appendf(nil, "%0*d\n", digits, token), 0); err != nil {
		return err
	}
	if err := s.file.Sync(); err != nil || s.highest != 0 {
		return err
	}
	return syncFolder(s.file.Name())
}

// syncFolder writes the folder of a file, which has the file's name, to the disk.
func syncFolder(path string) error {
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
