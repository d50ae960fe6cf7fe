package deployment

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestScriptCalls(t *testing.T) {
	const stats = "# Commandstats\r\n" +
		"cmdstat_hincrby:calls=900,usec=1,usec_per_call=1.00,rejected_calls=0,failed_calls=0\r\n" +
		"cmdstat_evalsha:calls=20,usec=300,usec_per_call=15.00,rejected_calls=0,failed_calls=1\r\n" +
		"cmdstat_eval:calls=3,usec=40,usec_per_call=13.33,rejected_calls=0,failed_calls=0\r\n" +
		"cmdstat_script|load:calls=5,usec=40,usec_per_call=13.33,rejected_calls=0,failed_calls=0\r\n" +
		"cmdstat_fcall:calls=1,usec=1,usec_per_call=1.00,rejected_calls=0,failed_calls=0\r\n"
	assert.EqualValues(t, 24, scriptCalls(stats))
	assert.EqualValues(t, 0, scriptCalls("# Commandstats\r\n"))
}
