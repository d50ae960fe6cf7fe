package worker

import (
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// A Site detects sections of all processes that overlap. It is a file that all processes map into memory. The file has the
// units in use and a count of overlaps for each lock. The check sends nothing to Redis and takes a few nanoseconds.
type Site struct{ memory []byte }

// spotSize keeps the spots of two locks out of one cache line.
const spotSize = 128

// A Spot is one lock's part of the site.
type Spot struct {
	inside   atomic.Int64 // the units of the holders inside
	overlaps atomic.Uint64
}

// whole is the units of a writer, and of a lock.
const whole = 1 << 31

// CreateSite makes the file, with the given number of spots.
func CreateSite(path string, spots int) (*Site, error) {
	if err := os.WriteFile(path, make([]byte, spots*spotSize), 0o600); err != nil {
		return nil, fmt.Errorf("site: %w", err)
	}
	return OpenSite(path)
}

// OpenSite maps a file that CreateSite made.
func OpenSite(path string) (*Site, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("site: %w", err)
	}
	defer func() { _ = file.Close() }() // the mapping stays when the file is closed
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("site: %w", err)
	}
	memory, err := syscall.Mmap(int(file.Fd()), 0, int(info.Size()), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("site: map %s: %w", path, err)
	}
	return &Site{memory}, nil
}

// Close unmaps the file. Spots must not be used any more.
func (s *Site) Close() { _ = syscall.Munmap(s.memory) }

// Spot is the place of a lock. A mapping begins at a page, so every spot is aligned for its atomics.
func (s *Site) Spot(i int) *Spot { return (*Spot)(unsafe.Pointer(&s.memory[i*spotSize])) }

// Overlaps returns how often a holder came in although the holders inside left no room for it: another holder of a lock, a
// writer, or, for a semaphore, the holders of all permits.
func (s *Site) Overlaps() int64 {
	var n uint64
	for i := range len(s.memory) / spotSize {
		n += s.Spot(i).overlaps.Load()
	}
	return int64(n)
}

// Enter records that a holder with these units is inside. If more than limit units are inside then, it counts an overlap.
func (s *Spot) Enter(units, limit int64) {
	if s.inside.Add(units) > limit {
		s.overlaps.Add(1)
	}
}

// Leave records that a holder with these units is outside again.
func (s *Spot) Leave(units int64) { s.inside.Add(-units) }
