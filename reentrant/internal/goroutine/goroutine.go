// Package goroutine checks that the ids of goroutines can be read.
package goroutine

import (
	"bytes"
	"fmt"
	"runtime"
	"strconv"

	"github.com/petermattis/goid"
)

// CheckIDs returns an error if, in one of two goroutines, the id that package goid reads out of the runtime's own structures is
// not the one that the runtime prints. A wrong id could make every goroutine the owner of every lock.
func CheckIDs() error {
	if err := checkID(goid.Get()); err != nil {
		return err
	}
	other := make(chan error)
	go func() { other <- checkID(goid.Get()) }()
	return <-other
}

func checkID(id int64) error {
	printed, err := printedID()
	if err != nil {
		return err
	}
	if id != printed {
		return fmt.Errorf("reentrant: goroutine ids cannot be trusted with this Go release (read %d, the runtime prints %d): use WithExplicitOwners", id, printed)
	}
	return nil
}

// printedID reads the id from the first line of the goroutine's stack: "goroutine 7 [running]:".
func printedID() (int64, error) {
	var buf [64]byte
	line := buf[:runtime.Stack(buf[:], false)]
	fields := bytes.Fields(line)
	if len(fields) < 2 {
		return 0, fmt.Errorf("reentrant: cannot read a goroutine id from %q: use WithExplicitOwners", line)
	}
	id, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reentrant: cannot read a goroutine id from %q: use WithExplicitOwners", line)
	}
	return id, nil
}
