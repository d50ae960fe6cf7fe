package main

// remains is the data in Redis after a job.
type remains struct {
	taken   []record // in the order in which they were taken
	left    int64    // items still in the buffer
	made    int64    // items that were put
	fullest int64    // the largest number of items that were in the buffer at once
}

// A verdict is the result of checking the remains.
type verdict struct {
	items    int64            // different items that were taken
	lost     int64            // items that no consumer took
	doubled  int64            // how often an item was taken again
	disorder int64            // how often an item came after a later item of the same producer
	left     int64            // items still in the buffer
	overfull int64            // by how many items the buffer was too full at worst
	shares   map[string]int64 // items by the process that took them
}

// judge checks the remains of a job with the given numbers of items, producers, and places in the buffer.
func judge(r remains, items int64, producers int, capacity int64) verdict {
	v := verdict{left: r.left, overfull: max(r.fullest-capacity, 0), shares: map[string]int64{}}
	seen := make(map[int64]bool, items)
	latest := make([]int64, producers)
	for _, t := range r.taken {
		v.shares[t.process]++
		if seen[t.item] {
			v.doubled++
			continue
		}
		seen[t.item] = true
		producer := (t.item - 1) % int64(producers)
		if t.item < latest[producer] {
			v.disorder++
		}
		latest[producer] = max(latest[producer], t.item)
	}
	v.items = int64(len(seen))
	v.lost = items - v.items
	return v
}

// clean reports whether every item came through once, in order, through a buffer that was never too full.
func (v verdict) clean() bool {
	return v.lost == 0 && v.doubled == 0 && v.disorder == 0 && v.left == 0 && v.overfull == 0
}
