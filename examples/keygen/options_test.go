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
	assert.Equal(t, options{processes: 5, workers: 5, keys: 5_000, ids: idsTable, lock: lockRelock, lease: defaultLease}, opts)
}

func TestOptionsAreRead(t *testing.T) {
	opts, err := parseOptions([]string{"-processes=2", "-workers=3", "-keys=4", "-kill=1", "-ids=snowflake", "-lock=none",
		"-lease=2s", "-redis=redis://h:1", "-dsn=mysql://u@h/d"}, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, options{processes: 2, workers: 3, keys: 4, kills: 1, ids: idsSnowflake, lock: lockNone, lease: 2 * time.Second,
		redis: "redis://h:1", dsn: "mysql://u@h/d"}, opts)

	opts, err = parseOptions([]string{"-db=k.db", "-turn=1s"}, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, "k.db", opts.dsn)
	assert.Equal(t, time.Second, opts.turn)
}

func TestOptionsAreChecked(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"TwoDatabases":    {[]string{"-db=k.db", "-dsn=mysql://u@h/d"}, "give one of them"},
		"NoDatabase":      {[]string{"-dsn=foo"}, "neither a URL"},
		"NoFile":          {[]string{"-dsn=x=y"}, "neither a URL"},
		"NoProcess":       {[]string{"-processes=0"}, "at least 1"},
		"NoWorker":        {[]string{"-workers=0"}, "at least 1"},
		"NoKey":           {[]string{"-keys=0"}, "at least 1"},
		"NegativeKills":   {[]string{"-kill=-1"}, "-kill"},
		"NoLease":         {[]string{"-lease=0s"}, "-lease"},
		"NegativeTurn":    {[]string{"-turn=-1s"}, "-turn"},
		"UnknownLock":     {[]string{"-lock=java"}, "relock, cohort and none"},
		"UnknownIDs":      {[]string{"-ids=uuid"}, "table and snowflake"},
		"TurnOfIDs":       {[]string{"-ids=snowflake", "-turn=1s"}, "-turn"},
		"TooManyNodes":    {[]string{"-ids=snowflake", "-processes=200", "-workers=6"}, "1024 node numbers"},
		"StrayArgument":   {[]string{"relock"}, `unexpected argument "relock"`},
		"UnknownFlag":     {[]string{"-keyz=4"}, "keyz"},
		"NotEvenANumeral": {[]string{"-keys=many"}, "keys"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseOptions(test.args, io.Discard)
			require.ErrorContains(t, err, test.want)
		})
	}
}
