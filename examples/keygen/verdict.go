package main

// A verdict is the result of checking the records.
type verdict struct {
	numbers    int64            // different numbers that were handed out
	duplicates int64            // how many records there are beyond one for each number
	gaps       int64            // numbers that no worker got
	reversals  int64            // records whose token is not above that of the record before, in the order of the numbers
	shares     map[string]int64 // records by process

	nodes       int64 // of ids: how many node numbers were in use
	successions int64 // of ids: how often a node number passed to another holder
}

// judge checks the records of a job that had to hand out the numbers 1 to last. The records are in the order of the numbers.
func judge(records []record, last int64) verdict {
	v := verdict{shares: map[string]int64{}}
	for i, r := range records {
		v.shares[r.server]++
		if i == 0 {
			v.numbers++
			continue
		}
		before := records[i-1]
		if r.key == before.key {
			v.duplicates++
		} else {
			v.numbers++
		}
		if r.token <= before.token {
			v.reversals++
		}
	}
	v.gaps = last - v.numbers
	return v
}

// judgeIDs checks the records of ids, in the order of the ids. The holders of each node number must come one after the other.
// If a token comes back after a higher token, there were two holders at the same time, even if their ids happen to differ.
func judgeIDs(records []record) verdict {
	v := verdict{shares: map[string]int64{}}
	last := map[int]int64{} // the token of the last record of each node number
	for i, r := range records {
		v.shares[r.server]++
		if i > 0 && r.key == records[i-1].key {
			v.duplicates++
		} else {
			v.numbers++
		}
		before, known := last[nodeOf(r.key)]
		switch {
		case !known:
			v.nodes++
		case r.token < before:
			v.reversals++
		case r.token > before:
			v.successions++
		}
		last[nodeOf(r.key)] = r.token
	}
	return v
}
