package fence_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/fence"
	"github.com/relock-go/relock/fence/fencetest"
)

// serve returns a handler that reads and writes a resource, as a service does.
func serve(resource fence.Resource) http.Handler {
	return fence.RequireToken(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, err := handle(resource, r)
		if err == nil {
			_, _ = w.Write(data)
		} else if !fence.Refuse(w, err) {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
}

func handle(resource fence.Resource, r *http.Request) ([]byte, error) {
	token := fence.FromContext(r.Context())
	if r.Method == http.MethodGet {
		return resource.Read(r.Context(), token)
	}
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	return nil, resource.Write(r.Context(), token, data)
}

// A client is the resource of a service, as a program that uses the service sees it.
type client struct{ url string }

func (c client) Read(ctx context.Context, token fence.Token) ([]byte, error) {
	return c.do(ctx, http.MethodGet, token, nil)
}

func (c client) Write(ctx context.Context, token fence.Token, data []byte) error {
	_, err := c.do(ctx, http.MethodPut, token, data)
	return err
}

func (c client) do(ctx context.Context, method string, token fence.Token, data []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.url, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	fence.SetToken(request, token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if err := fence.FromResponse(response); err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %s", response.Status)
	}
	return io.ReadAll(response.Body)
}

func TestHTTP(t *testing.T) {
	fencetest.Run(t, func(t *testing.T) fencetest.Fixture {
		f := newDatabase(t, servers["SQLite"]).fixture()
		server := httptest.NewServer(serve(f.Open(t)))
		t.Cleanup(server.Close)
		f.Open = func(testing.TB) fence.Resource { return client{server.URL + "/the/resource"} }
		return f
	})
}

func TestARequestNeedsOneToken(t *testing.T) {
	for want, values := range map[int][]string{
		http.StatusPreconditionRequired: nil,
		http.StatusBadRequest:           {"", "0", "-1", "+1", "1.0", "0x1", "nine", "9007199254740992", "18446744073709551616"},
		http.StatusOK:                   {"1", "9007199254740991"},
	} {
		if values == nil {
			assert.Equal(t, want, status(t))
		}
		for _, value := range values {
			assert.Equal(t, want, status(t, value), "%q", value)
		}
	}
	assert.Equal(t, http.StatusBadRequest, status(t, "7", "9"), "which of them?")
}

// status returns the status of the response to a request with these tokens.
func status(t *testing.T, tokens ...string) int {
	ran := false
	handler := fence.RequireToken(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ran = true
		assert.NotZero(t, fence.FromContext(r.Context()))
	}))
	r := httptest.NewRequest(http.MethodPut, "/", nil)
	r.Header[fence.Header] = tokens
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	assert.Equal(t, w.Code == http.StatusOK, ran, "the handler runs with a token only")
	return w.Code
}

func TestOnlyStaleTokensAreRefused(t *testing.T) {
	w := httptest.NewRecorder()
	assert.False(t, fence.Refuse(w, nil))
	assert.False(t, fence.Refuse(w, errors.New("the disk is full")))
	assert.Empty(t, w.Header())
	assert.True(t, fence.Refuse(w, fmt.Errorf("sell: %w", &fence.StaleError{Resource: "secret", Token: 7, Highest: 9})))
	assert.Equal(t, http.StatusPreconditionFailed, w.Code)
	assert.Equal(t, "9", w.Header().Get(fence.HighestHeader))
	assert.NotContains(t, w.Body.String(), "secret")
}

func TestAnotherPreconditionThatFailedIsNoStaleToken(t *testing.T) {
	r := httptest.NewRequest(http.MethodPut, "/", nil)
	fence.SetToken(r, 7)
	for _, highest := range []string{"", "nine", "0"} {
		response := &http.Response{StatusCode: http.StatusPreconditionFailed, Request: r, Header: http.Header{}}
		response.Header.Set(fence.HighestHeader, highest)
		require.NoError(t, fence.FromResponse(response))
	}
	require.NoError(t, fence.FromResponse(&http.Response{StatusCode: http.StatusOK, Request: r}))
	require.NoError(t, fence.FromResponse(&http.Response{StatusCode: http.StatusPreconditionFailed}))
	assert.Zero(t, fence.FromContext(t.Context()))
}
