//go:build !invariants && !race

package localqueue

const invariants = false

func (q *Queue[K]) check() {}
