package main

// A verdict is the result of checking the records.
type verdict struct {
	numbers    int64            // different numbers that were handed out
	duplicates int64            // records beyond one for each of them
	gaps       int64            // numbers that no worker got
	reversals  int64            // records whose token is not above the one before, in the order of the numbers
	shares     map[string]int64 // records by process

	nodes       int64 // of ids: node numbers that were in use
	successions int64 // of ids: how often one came to another holder
}

// judge looks at the records, in the order of their numbers, of a job that was to hand out 1 to last.
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

// judgeIDs looks at the records of ids, in their order. Of each node the holders must follow each other in it: a token that
// comes back after a higher one shows two holders whose times overlap, also where their ids happen to differ.
func judgeIDs(records []record) verdict {
	v := verdict{shares: map[string]int64{}}
	last := map[int]int64{} // the token of each node's last record
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
