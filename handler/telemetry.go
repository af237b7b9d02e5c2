package handler

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/secrets"
	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
)

// flushTime limits the last export of spans and metrics at shutdown.
const flushTime = 3 * time.Second

// A telemetry exports spans and metrics as configured by the standard environment variables of
// OpenTelemetry.
type telemetry struct {
	tracing durable.Tracing
	metrics durable.Metrics
	flush   []func(context.Context) error
}

// newTelemetry returns the telemetry that env configures. It exports spans over OTLP if
// OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set, or if OTEL_TRACES_EXPORTER
// is otlp. The same applies to metrics. Otherwise it exports nothing and costs nothing. The result is
// valid even if there is an error: the error describes the telemetry that is not exported.
func newTelemetry(ctx context.Context, env func(string) (string, bool)) (*telemetry, error) {
	t := &telemetry{}
	spans, errSpans := wants(env, "TRACES")
	metrics, errMetrics := wants(env, "METRICS")
	err := errors.Join(errSpans, errMetrics)
	if !spans && !metrics {
		return t, err
	}
	process, errProcess := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", serviceName(env))),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if errProcess != nil {
		err = errors.Join(err, fmt.Errorf("describe this process to the receiver of spans and metrics: %w", errProcess))
	}
	// The exporters read the other OTEL_EXPORTER_OTLP_ variables themselves.
	if spans {
		exporter, errNew := otlptracehttp.New(ctx)
		if errNew != nil {
			return t, errors.Join(err, fmt.Errorf("start the export of spans: %w", errNew))
		}
		p := trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithIDGenerator(durable.SpanIDs{}), trace.WithResource(process))
		t.tracing.Provider, t.flush = p, append(t.flush, p.Shutdown)
	}
	if metrics {
		exporter, errNew := otlpmetrichttp.New(ctx)
		if errNew != nil {
			return t, errors.Join(err, fmt.Errorf("start the export of metrics: %w", errNew))
		}
		p := metric.NewMeterProvider(metric.WithReader(metric.NewPeriodicReader(exporter)), metric.WithResource(process))
		t.metrics.Provider, t.flush = p, append(t.flush, p.Shutdown)
	}
	return t, err
}

// stop exports the remaining spans and metrics and ends the export.
func (t *telemetry) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	var errs []error
	for _, flush := range t.flush {
		errs = append(errs, flush(ctx))
	}
	return errors.Join(errs...)
}

// wants reports whether env turns the export of a signal (TRACES or METRICS) on.
func wants(env func(string) (string, bool), signal string) (bool, error) {
	if off, ok := env("OTEL_SDK_DISABLED"); ok {
		if b, err := strconv.ParseBool(off); err == nil && b {
			return false, nil
		}
	}
	exporter, _ := env("OTEL_" + signal + "_EXPORTER")
	switch exporter = strings.ToLower(strings.TrimSpace(exporter)); exporter {
	case "none":
		return false, nil
	case "", "otlp":
	default:
		return false, fmt.Errorf("OTEL_%s_EXPORTER is %q; want otlp or none", signal, exporter)
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_" + signal + "_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if p, ok := env(name); ok && p != "" {
			if p != "http/protobuf" {
				return false, fmt.Errorf("%s is %q; want http/protobuf", name, p)
			}
			break
		}
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_" + signal + "_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"} {
		if e, ok := env(name); ok && e != "" {
			return true, nil
		}
	}
	return exporter == "otlp", nil
}

// serviceName returns the name of the app in telemetry: OTEL_SERVICE_NAME or, on Azure, the site's
// name.
func serviceName(env func(string) (string, bool)) string {
	for _, name := range []string{"OTEL_SERVICE_NAME", "WEBSITE_SITE_NAME"} {
		if v, ok := env(name); ok && v != "" {
			return v
		}
	}
	return "functions-app"
}

// startTelemetry makes the worker and client of cfg export spans and metrics, if the environment
// configures it. The caller must call stop before it exits.
func startTelemetry(ctx context.Context, cfg *Config) (stop func()) {
	t, err := newTelemetry(ctx, os.LookupEnv)
	if err != nil {
		cfg.Logger.Warn("some of the telemetry that the environment configures is not exported", "error", secrets.Line(err))
	}
	cfg.Worker.Tracing, cfg.Worker.Metrics = t.tracing, t.metrics
	cfg.Storage.MeterProvider = t.metrics.Provider
	logger := cfg.Logger
	return func() {
		if err := t.stop(ctx); err != nil {
			logger.Warn("some spans and metrics were not exported", "error", secrets.Line(err))
		}
	}
}

// joinTrace continues the trace in a request's traceparent header.
func joinTrace(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		if ctx != r.Context() {
			c.SetRequest(r.WithContext(ctx))
		}
		return next(c)
	}
}
