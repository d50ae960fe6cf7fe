package main

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOptionsHaveDefaults(t *testing.T) {
	opts, err := parseOptions(nil, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, options{processes: 3, producers: 3, consumers: 2, items: 1_000, capacity: 5, lock: lockRelock,
		lease: defaultLease}, opts)
}

func TestOptionsAreRead(t *testing.T) {
	opts, err := parseOptions([]string{"-processes=2", "-producers=4", "-consumers=5", "-items=6", "-capacity=7", "-kill=1",
		"-lock=none", "-lease=8s", "-redis=redis://h:1"}, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, options{processes: 2, producers: 4, consumers: 5, items: 6, capacity: 7, kills: 1, lock: lockNone,
		lease: 8 * time.Second, redis: "redis://h:1"}, opts)
}

func TestOptionsAreChecked(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"NoProcess":       {[]string{"-processes=0"}, "-processes"},
		"NoProducer":      {[]string{"-producers=0"}, "-producers"},
		"NoConsumer":      {[]string{"-consumers=0"}, "-consumers"},
		"NoItem":          {[]string{"-items=0"}, "-items"},
		"NoPlace":         {[]string{"-capacity=0"}, "-capacity"},
		"NegativeKills":   {[]string{"-kill=-1"}, "-kill"},
		"NoLease":         {[]string{"-lease=0s"}, "-lease"},
		"UnknownLock":     {[]string{"-lock=java"}, "relock and none"},
		"StrayArgument":   {[]string{"relock"}, `unexpected argument "relock"`},
		"UnknownFlag":     {[]string{"-itemz=4"}, "itemz"},
		"NotEvenANumeral": {[]string{"-items=many"}, "items"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseOptions(test.args, io.Discard)
			require.ErrorContains(t, err, test.want)
		})
	}
}
