package result

import "slices"

// Jain returns the fairness of shares, after Jain, Chiu and Hawe: 1 if all are equal, 1/n if one of n has everything, and 0 if
// all shares are 0.
func Jain(shares []int64) float64 {
	var sum, squares float64
	for _, share := range shares {
		sum += float64(share)
		squares += float64(share) * float64(share)
	}
	return ratio(sum*sum, squares*float64(len(shares)))
}

// ratio returns a/b, or 0 if b is 0.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// A Range is what several rounds measured.
type Range struct{ Median, Least, Most float64 }

// rangeOf returns zeros if there are no values. The median of an even number of values is the mean of the middle two.
func rangeOf(values []float64) Range {
	n := len(values)
	if n == 0 {
		return Range{}
	}
	sorted := slices.Sorted(slices.Values(values))
	return Range{(sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[0], sorted[n-1]}
}
