// Command fastpath writes the coverage counters of one Lock and one Unlock without contention. .ci/fastpath builds this command
// with go build -cover.
package main

import (
	"context"
	"log"
	"os"
	"path/filepath"
	"runtime/coverage"
	"strconv"
	"time"

	"github.com/relock-go/relock/redisbackend"
	"github.com/relock-go/relock/reentrant"
)

// windows is how often each call is measured. A count also has what other goroutines of the session do at the same moment. The
// smallest count has nothing of that.
const windows = 20

func main() {
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url, folder string) error {
	backend, err := redisbackend.Open(ctx, url)
	if err != nil {
		return err
	}
	defer backend.Close()
	session, err := reentrant.NewSession(backend, reentrant.WithLease(time.Minute))
	if err != nil {
		return err
	}
	defer func() { _ = session.Close(ctx) }() // the process ends
	other, lock := session.NewLock("fastpath other"), session.NewLock("fastpath")
	if err := other.Lock(ctx); err != nil { // so that the watchdog is awake, and the measured call need not wake it
		return err
	}
	defer func() { _ = other.Unlock(ctx) }()
	for i := range windows {
		n := strconv.Itoa(i)
		if err := counted(filepath.Join(folder, "lock", n), func() error { return lock.Lock(ctx) }); err != nil {
			return err
		}
		if err := counted(filepath.Join(folder, "unlock", n), func() error { return lock.Unlock(ctx) }); err != nil {
			return err
		}
	}
	return nil
}

// counted writes the counters of one call to a folder.
func counted(folder string, call func() error) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if err := coverage.ClearCounters(); err != nil {
		return err
	}
	if err := call(); err != nil {
		return err
	}
	if err := coverage.WriteCountersDir(folder); err != nil {
		return err
	}
	return coverage.WriteMetaDir(folder)
}
