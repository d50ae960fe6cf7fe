package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// scraped returns what Prometheus reads from a server at which a seat was picked and released.
func scraped(t *testing.T) string {
	t.Helper()
	p := newPair(t, time.Hour)
	ann := enters(t, p.urls)
	ann.gets(http.StatusOK, 1, "hold", "B07")
	ann.gets(http.StatusOK, 1, "release", "B07")
	var page string
	require.Eventually(t, func() bool { // events are observed in the background
		response, err := http.Get(p.urls[0] + "/metrics")
		require.NoError(t, err)
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		page = string(text)
		return strings.Contains(page, `relock_result="released"`)
	}, time.Minute, 10*time.Millisecond)
	return page
}

func TestPrometheusReadsTheLocks(t *testing.T) {
	t.Parallel()
	page := scraped(t)
	const scope = `otel_scope_name="github.com/relock-go/relock/relockotel",otel_scope_schema_url="",otel_scope_version="devel"`
	// The lock was acquired twice: by the pick, and to release the seat.
	assert.Contains(t, page, `relock_lock_acquisitions_total{`+scope+`,relock_lock_name="row B",relock_result="acquired"} 2`)
	assert.Contains(t, page, `relock_lock_hold_duration_seconds_count{`+scope+`,relock_lock_name="row B",relock_result="released"} 1`)
	assert.Contains(t, page, "\nrelock_lock_held{"+scope+"} 0\n")
	assert.Regexp(t, `\nrelock_commands_total{[^}]*} [1-9]`, page)
	assert.Regexp(t, `\ntarget_info{.*service_instance_id="server 1",service_name="seats"`, page)
	assert.NotContains(t, page, "B07", "a time series for every seat")
}

// families returns the names of the metrics on a page, with those that Prometheus derives from a histogram.
func families(page string) (plain, all []string) {
	for _, match := range regexp.MustCompile(`(?m)^# TYPE (relock_\w+) (\w+)$`).FindAllStringSubmatch(page, -1) {
		name := match[1]
		plain, all = append(plain, name), append(all, name)
		if match[2] == "histogram" {
			all = append(all, name+"_bucket", name+"_sum", name+"_count")
		}
	}
	return plain, all
}

var (
	metricName = regexp.MustCompile(`\brelock_(?:lock|commands)\w*\b`)
	labelNames = []string{"relock_lock_name", "relock_result", "relock_cause"}
)

func TestTheDashboardShowsWhatThereIs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../relockotel/dashboard.json")
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
			GridPos struct{ X, Y, W, H int }
		}
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	plain, all := families(scraped(t))
	shown, ids := map[string]bool{}, map[int]bool{}
	for i, p := range dashboard.Panels {
		assert.False(t, ids[p.ID], "two panels are %d", p.ID)
		ids[p.ID] = true
		for _, other := range dashboard.Panels[:i] {
			a, b := p.GridPos, other.GridPos
			assert.False(t, a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H, "%s covers %s", p.Title, other.Title)
		}
		for _, target := range p.Targets {
			for _, name := range metricName.FindAllString(target.Expr, -1) {
				shown[regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")] = true
			}
		}
	}
	for _, name := range plain {
		assert.True(t, shown[name], "no panel shows %s", name)
	}
	assertMetrics(t, all, string(text)) // in variables and annotations too
}

// The names in docs/metrics.md and in the alerts are those that Prometheus reads, and the page names each alert.
func TestTheDocumentedNamesAreThoseInPrometheus(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/metrics.md")
	require.NoError(t, err)
	plain, all := families(scraped(t))
	for _, name := range plain {
		assert.True(t, strings.Contains(string(text), "` | `"+name+"` |"), "%s is not in the table", name)
	}
	assertMetrics(t, all, string(text))
	rules, err := os.ReadFile("../../relockotel/alerts.yaml")
	require.NoError(t, err)
	assertMetrics(t, all, string(rules))
	alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(string(rules), -1)
	assert.NotEmpty(t, alerts)
	for _, alert := range alerts {
		assert.Contains(t, string(text), "`"+alert[1]+"`")
	}
}

// assertMetrics asserts that all metrics that a text names exist.
func assertMetrics(t *testing.T, there []string, text string) {
	t.Helper()
	for _, name := range metricName.FindAllString(text, -1) {
		if !slices.Contains(labelNames, name) {
			assert.Contains(t, there, name)
		}
	}
}
