package main

// A verdict is the result of checking the remains.
type verdict struct {
	parts    int // parts that were given out
	cents    int // cents in these parts
	served   int // openids that got a part
	due      int // openids that should have got one: all, or as many as there are parts
	thieves  int // openids that got more than one part
	stolen   int // cents that people got beyond their first part
	left     int // cents still in the packet
	missing  int // cents that are neither given out nor left; negative if there are too many
	smallest int // cents in the smallest part given out
	largest  int //
}

// judge checks the remains of a job with the given parts and cents.
func judge(r remains, parts, cents int) verdict {
	v := verdict{due: min(parts, len(r.got)), left: sum(r.left)}
	for _, got := range r.got {
		v.parts += len(got)
		v.cents += sum(got)
		for _, part := range got {
			if v.smallest == 0 || part < v.smallest {
				v.smallest = part
			}
			v.largest = max(v.largest, part)
		}
		if len(got) > 0 {
			v.served++
		}
		if len(got) > 1 {
			v.thieves++
			v.stolen += sum(got[1:])
		}
	}
	v.missing = cents - v.cents - v.left
	return v
}

// clean reports whether every person got the one part that was due, and every cent is where it should be.
func (v verdict) clean() bool {
	return v.thieves == 0 && v.served == v.due && v.parts == v.due && v.missing == 0
}

func sum(amounts []int) int {
	total := 0
	for _, n := range amounts {
		total += n
	}
	return total
}
