package main

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A replica does not read a large form, and limits its queue. The agent here has no store, because the requests do not get so
// far.
func TestRequestsHaveLimits(t *testing.T) {
	t.Parallel()
	a := &agent{}
	post := func(kind, body string) int {
		r := httptest.NewRequest(http.MethodPost, "/conversations/A/turns", strings.NewReader(body))
		r.Header.Set("Content-Type", kind)
		w := httptest.NewRecorder()
		(&server{agent: a}).handler().ServeHTTP(w, r)
		return w.Code
	}
	large := strings.Repeat("x", mostBytes)
	assert.Equal(t, http.StatusBadRequest, post("application/x-www-form-urlencoded", "stop="+large))
	var form bytes.Buffer
	parts := multipart.NewWriter(&form)
	file, err := parts.CreateFormFile("file", "large")
	require.NoError(t, err)
	_, err = file.Write([]byte(large))
	require.NoError(t, err)
	require.NoError(t, parts.Close())
	assert.Equal(t, http.StatusBadRequest, post(parts.FormDataContentType(), form.String()))

	a.turns.Store(mostTurns)
	assert.Equal(t, http.StatusTooManyRequests, post("application/x-www-form-urlencoded", "stop=1"))
}
