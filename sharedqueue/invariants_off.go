//go:build !invariants && !race

package sharedqueue

const invariants = false

func (q *RW[O]) check() {}

func (q *Permits) check() {}
