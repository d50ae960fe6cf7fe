package main

// A verdict is what the records prove.
type verdict struct {
	numbers    int64            // different numbers that were handed out
	duplicates int64            // records beyond one for each of them
	gaps       int64            // numbers that nobody was given
	reversals  int64            // records whose token is not above the one before, in the order of the numbers
	shares     map[string]int64 // records by process
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
