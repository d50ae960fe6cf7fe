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

// A telemetry measures a server's locks, and serves the page that Prometheus reads. relockotel/dashboard.json shows these
// metrics in Grafana. The commands of the board, which reads eighty locks at a time, are not counted. A loss is no reason
// for an alarm here: a hold that simply ends counts as lost, and so does, at the first server, a hold that the other one
// has taken up.
type telemetry struct {
	*relockotel.Telemetry
	page http.Handler
}

// newTelemetry returns the telemetry of the server with the given number. Prometheus finds the service's name in target_info.
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

// rowOf returns the name by which metrics know a seat's lock. This is the name of the seat's row: eighty seats would be eighty
// time series for every instrument.
func rowOf(lock string) string {
	return "row " + seat(strings.TrimPrefix(lock, seat("").lockName())).row()
}
