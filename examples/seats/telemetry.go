package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/relock-go/relock/relockotel"
)

// A telemetry is what a server measures of its locks, and the page on which Prometheus reads it. relockotel/dashboard.json
// shows it in Grafana. Most commands are the board's, which looks at eighty locks at a time. And losses are no alarm here:
// a hold that is left to its end is one, and so is, at the server it leaves, one that goes on at the other.
type telemetry struct {
	*relockotel.Telemetry
	page http.Handler
}

// newTelemetry makes that of a server, with its number. Prometheus finds the service's name in target_info.
func newTelemetry(ctx context.Context, number int) (telemetry, error) {
	registry := prometheus.NewRegistry()
	exporter, err := otelprom.New(otelprom.WithRegisterer(registry))
	if err != nil {
		return telemetry{}, err
	}
	about, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(
			attribute.String("service.name", "seats"), attribute.String("service.instance.id", fmt.Sprintf("server %d", number))),
		resource.WithFromEnv()) // so OTEL_SERVICE_NAME gives another name
	if err != nil {
		return telemetry{}, err
	}
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter), sdkmetric.WithResource(about))
	locks, err := relockotel.New(relockotel.WithMeterProvider(provider), relockotel.WithLockName(rowOf))
	return telemetry{Telemetry: locks, page: promhttp.HandlerFor(registry, promhttp.HandlerOpts{})}, err
}

// rowOf is what metrics call a seat's lock: eighty seats would be eighty time series for every number.
func rowOf(lock string) string {
	return "row " + seat(strings.TrimPrefix(lock, seat("").lockName())).row()
}
