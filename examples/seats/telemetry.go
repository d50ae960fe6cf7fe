package main

import (
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/relock-go/relock/relockotel"
)

// A telemetry is what a server measures of its locks, and the page on which Prometheus reads it. relockotel/dashboard.json
// shows it in Grafana. Most commands are the board's, which looks at eighty locks at a time. And losses are no alarm here:
// a hold that is left to its end is one, and so is, at the server it leaves, one that goes on at the other.
type telemetry struct {
	*relockotel.Telemetry
	page http.Handler
}

func newTelemetry() (telemetry, error) {
	registry := prometheus.NewRegistry()
	exporter, err := otelprom.New(otelprom.WithRegisterer(registry), otelprom.WithoutScopeInfo())
	if err != nil {
		return telemetry{}, err
	}
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))
	locks, err := relockotel.New(relockotel.WithMeterProvider(provider), relockotel.WithLockName(rowOf))
	return telemetry{Telemetry: locks, page: promhttp.HandlerFor(registry, promhttp.HandlerOpts{})}, err
}

// rowOf is what metrics call a seat's lock: eighty seats would be eighty time series for every number.
func rowOf(lock string) string {
	return "row " + seat(strings.TrimPrefix(lock, seat("").lockName())).row()
}
