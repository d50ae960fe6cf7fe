package main

import (
	"fmt"
	"strconv"
	"time"
)

// seconds is a duration flag; a plain number is in seconds.
type seconds time.Duration

// UnmarshalText reads 5, 0.5, or what [time.ParseDuration] reads.
func (s *seconds) UnmarshalText(text []byte) error {
	value := string(text)
	if _, err := strconv.ParseFloat(value, 64); err == nil {
		value += "s"
	}
	d, err := time.ParseDuration(value)
	if err != nil {
		return fmt.Errorf("%q is no duration: give seconds, as 30 or 0.5, or a duration, as 500ms, 5m or 1h30m", text)
	}
	*s = seconds(d)
	return nil
}
