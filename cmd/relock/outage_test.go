//go:build unix

package main

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
)

func TestTheBeginningAndTheEndOfAnOutageAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stderr := new(output)
		o := outage{stderr: stderr}
		said := func(err error) string {
			o.update(err, func() string { return "the lock stays taken" })
			synctest.Wait() // the message is printed in the background
			return stderr.String()
		}
		const begun = "relock: Redis does not answer; the lock stays taken: refused\n"
		assert.Empty(t, said(nil))
		assert.Equal(t, begun, said(errors.New("refused")))
		assert.Equal(t, begun, said(errors.New("refused")), "the outage is reported once")
		assert.Equal(t, begun+"relock: Redis answers again\n", said(nil))
		assert.Equal(t, begun+"relock: Redis answers again\n", said(nil))
	})
}
