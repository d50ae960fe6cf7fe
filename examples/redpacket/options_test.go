package main

import (
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOptionsHaveDefaults(t *testing.T) {
	opts, err := parseOptions(nil, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, options{processes: 5, openids: 200, requests: 15, parts: 100, cents: 20_000, lock: lockRelock}, opts)
}

func TestOptionsAreRead(t *testing.T) {
	opts, err := parseOptions([]string{"-processes=2", "-openids=3", "-requests=4", "-parts=5", "-cents=6", "-lock=none",
		"-redis=redis://h:1"}, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, options{processes: 2, openids: 3, requests: 4, parts: 5, cents: 6, lock: lockNone, redis: "redis://h:1"}, opts)
}

func TestOptionsAreChecked(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"NoProcess":       {[]string{"-processes=0"}, "-processes"},
		"NoOpenid":        {[]string{"-openids=0"}, "-openids"},
		"NoRequest":       {[]string{"-requests=0"}, "-requests"},
		"NoPart":          {[]string{"-parts=0"}, "-parts"},
		"EmptyParts":      {[]string{"-parts=5", "-cents=4"}, "-cents"},
		"UnknownLock":     {[]string{"-lock=java"}, "relock and none"},
		"StrayArgument":   {[]string{"relock"}, `unexpected argument "relock"`},
		"UnknownFlag":     {[]string{"-partz=4"}, "partz"},
		"NotEvenANumeral": {[]string{"-parts=many"}, "parts"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseOptions(test.args, io.Discard)
			require.ErrorContains(t, err, test.want)
		})
	}
}
