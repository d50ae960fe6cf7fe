package worker

import (
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// A Site is where the sections of all processes take place: a file in everybody's memory, in which each lock has an
// owner's word and a count of overlaps. It looks for two holders without a word to Redis, and in a few nanoseconds.
type Site struct{ memory []byte }

// spotSize keeps the spots of two locks out of one cache line.
const spotSize = 128

// A Spot is one lock's part of the site.
type Spot struct {
	holder   atomic.Uint64 // who is inside; 0 for nobody
	overlaps atomic.Uint64
}

// CreateSite makes the file, with so many spots.
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
	defer func() { _ = file.Close() }() // the map outlives it
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

// Overlaps is how often somebody came in while somebody else was inside.
func (s *Site) Overlaps() int64 {
	var n uint64
	for i := range len(s.memory) / spotSize {
		n += s.Spot(i).overlaps.Load()
	}
	return int64(n)
}

// Enter notes that id is inside, and counts an overlap if somebody else is.
func (s *Spot) Enter(id uint64) {
	if !s.holder.CompareAndSwap(0, id) {
		s.overlaps.Add(1)
	}
}

// Leave notes that id is outside. One who overlapped is not noted as inside, and leaves no trace.
func (s *Spot) Leave(id uint64) { s.holder.CompareAndSwap(id, 0) }
