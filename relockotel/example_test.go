package relockotel_test

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
	"github.com/relock-go/relock/relockotel"
)

func open(backend backend.Backend) (*reentrant.Session, error) {
	telemetry, err := relockotel.New() // one for a process: metrics and spans go to OpenTelemetry's global providers
	if err != nil {
		return nil, err
	}
	session, err := reentrant.NewSession(backend, reentrant.WithObserver(telemetry.Observer()))
	if err != nil {
		return nil, err
	}
	telemetry.Watch(session)
	return session, nil
}

// A program that has set OpenTelemetry up already needs only open. This one sets it up first.
func Example() {
	ctx := context.Background()
	redis, err := redistest.New()
	if err != nil {
		panic(err)
	}
	defer redis.Close()
	reader := sdkmetric.NewManualReader() // or an exporter: Prometheus, OTLP, …
	otel.SetMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))

	session, err := open(redis.Backend())
	if err != nil {
		panic(err)
	}
	defer session.Close(ctx)
	err = session.NewLock("account:7").Do(ctx, func(context.Context) error { return nil })
	fmt.Println("error:", err)

	var read metricdata.ResourceMetrics
	err = reader.Collect(ctx, &read)
	fmt.Println("error:", err)
	for _, m := range read.ScopeMetrics[0].Metrics {
		if m.Name == "relock.commands" {
			fmt.Println(m.Name, m.Data.(metricdata.Sum[int64]).DataPoints[0].Value)
		}
	}
	// Output:
	// error: <nil>
	// error: <nil>
	// relock.commands 2
}
