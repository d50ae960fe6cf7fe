package main

import (
	"fmt"
	"slices"
	"strings"
)

// The size of the hall. There is one row for each letter, with an aisle in the middle.
const (
	rows    = "ABCDEFGH"
	columns = 10
)

// price is the price of a seat, in euros.
const price = 12

// A seat is one place in the hall: "A05".
type seat string

// seats are all seats of the hall.
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

// wheelchair reports whether the place has room for a wheelchair. These are the places at both ends of the last row, beside the
// doors.
func (s seat) wheelchair() bool { return slices.Contains([]seat{"H01", "H02", "H09", "H10"}, s) }

// row and number return the parts of its name, as shown to visitors: "A" and "5".
func (s seat) row() string    { return string(s[:1]) }
func (s seat) number() string { return strings.TrimLeft(string(s[1:]), "0") }

func (s seat) String() string { return s.row() + s.number() }

// lockName returns the name of the seat's lock.
func (s seat) lockName() string { return "seats:" + string(s) }

// list formats the names of seats: "A5", "A5 and A6", "A5, A6 and A7".
func list(seats []seat) string {
	names := make([]string, len(seats))
	for i, s := range seats {
		names[i] = s.String()
	}
	if last := len(names) - 1; last > 0 {
		return strings.Join(names[:last], ", ") + " and " + names[last]
	}
	return strings.Join(names, "")
}
