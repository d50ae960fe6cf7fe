package redisbackend_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/redisbackend"
)

// A parameter that is not known must not be ignored, or the server would be asked with other limits than those that the user
// wrote.
func TestAURLWithAnUnknownParameterIsRefusedByName(t *testing.T) {
	const known = "known are addr, client_cache, client_name, db, dial_timeout, master_set, max_retries, protocol, skip_verify, write_timeout"
	for parameters, want := range map[string]string{
		"read_timeout=3s":              `the URL's parameter "read_timeout" is not known; ` + known,
		"db=1&connectTimeout=3":        `the URL's parameter "connectTimeout" is not known; ` + known,
		"DB=1":                         `the URL's parameter "DB" is not known`,
		"db=1;protocol=2":              "parameters are not valid",
		"addr=10.0.0.4":                "parameters are not valid",
		"client_name=%zz":              "parameters are not valid",
		"secret":                       "the URL has a parameter that is not known; " + known, // a part of a password?
		"s3cret=1":                     "the URL has a parameter that is not known; " + known,
		"secret=1@127.0.0.1":           "special characters in a password must be percent-encoded",
		"client_name=a@b&pool_size=10": "special characters in a password must be percent-encoded",
	} {
		_, err := redisbackend.Open(t.Context(), "redis://me:pw@127.0.0.1:1?"+parameters)
		require.ErrorContains(t, err, want, parameters)
		assert.NotContains(t, err.Error(), "cret", parameters)
	}
	_, err := redisbackend.ParseURL("redis://127.0.0.1:99999")
	assert.ErrorContains(t, err, "port")
}

func TestParseURLKnowsAllParametersOfTheClient(t *testing.T) {
	option, err := redisbackend.ParseURL("rediss://me:pass%2Fword@10.0.0.1:1/2?addr=10.0.0.2:3&&addr=10.0.0.4:5&dial_timeout=4s&write_timeout=5s" +
		"&skip_verify=true&protocol=2&client_cache=0&max_retries=0&client_name=a@b&master_set=main")
	require.NoError(t, err)
	assert.Equal(t, []string{"10.0.0.1:1", "10.0.0.2:3", "10.0.0.4:5"}, option.InitAddress)
	assert.Equal(t, "me pass/word a@b main", option.Username+" "+option.Password+" "+option.ClientName+" "+option.Sentinel.MasterSet)
	assert.Equal(t, 4*time.Second, option.Dialer.Timeout)
	assert.Equal(t, 5*time.Second, option.ConnWriteTimeout)
	assert.Equal(t, 2, option.SelectDB)
	assert.True(t, option.TLSConfig.InsecureSkipVerify && option.AlwaysRESP2 && option.DisableCache && option.DisableRetry)
	option, err = redisbackend.ParseURL("unix:///tmp/redis.sock?db=%37")
	require.NoError(t, err)
	assert.Equal(t, 7, option.SelectDB)
}
