package main

import (
	"fmt"
	"slices"
	"strings"
)

// The hall has rows of so many seats, with an aisle in the middle.
const (
	rows    = "ABCDEFGH"
	columns = 10
)

// A seat is one place in the hall: "A05".
type seat string

// seats are all there are.
var seats = func() []seat {
	var all []seat
	for _, row := range rows {
		for column := range columns {
			all = append(all, seat(fmt.Sprintf("%c%02d", row, column+1)))
		}
	}
	return all
}()

func (s seat) exists() bool { return slices.Contains(seats, s) }

// row and number are the parts of its name as people say them: "A" and "5".
func (s seat) row() string    { return string(s[:1]) }
func (s seat) number() string { return strings.TrimLeft(string(s[1:]), "0") }

func (s seat) String() string { return s.row() + s.number() }

// lockName is the lock that a hold of the seat is.
func (s seat) lockName() string { return "seats:" + string(s) }
