package handler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
)

// flushTime bounds how long a stopping process sends what spans it has.
const flushTime = 3 * time.Second

// A telemetry sends spans to where the standard variables of OpenTelemetry say.
type telemetry struct {
	tracing durable.Tracing
	flush   func() error
}

// newTelemetry returns what the environment asks for: spans go to an OTLP
// receiver if OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT
// names one, or OTEL_TRACES_EXPORTER is otlp. Otherwise it does nothing, at no
// cost. What it cannot do, it says in an error; the app works without.
func newTelemetry(ctx context.Context, env func(string) (string, bool)) (*telemetry, error) {
	off := &telemetry{flush: func() error { return nil }}
	wanted, err := wantsSpans(env)
	if err != nil || !wanted {
		return off, err
	}
	exporter, err := otlptracehttp.New(ctx) // reads the other OTEL_EXPORTER_OTLP_ variables itself
	if err != nil {
		return off, fmt.Errorf("start the export of spans: %w", err)
	}
	described, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", serviceName(env))),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return off, fmt.Errorf("describe this process to the receiver of spans: %w", err)
	}
	p := trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithIDGenerator(durable.SpanIDs{}), trace.WithResource(described))
	flush := func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
		defer cancel()
		return p.Shutdown(ctx)
	}
	return &telemetry{tracing: durable.Tracing{Provider: p}, flush: flush}, nil
}

// wantsSpans reads the variables that turn spans on and off.
func wantsSpans(env func(string) (string, bool)) (bool, error) {
	if off, ok := env("OTEL_SDK_DISABLED"); ok {
		if b, err := strconv.ParseBool(off); err == nil && b {
			return false, nil
		}
	}
	exporter, _ := env("OTEL_TRACES_EXPORTER")
	switch exporter = strings.ToLower(strings.TrimSpace(exporter)); exporter {
	case "none":
		return false, nil
	case "", "otlp":
	default:
		return false, fmt.Errorf("OTEL_TRACES_EXPORTER is %q: otlp and none are known here", exporter)
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if p, ok := env(name); ok && p != "" {
			if p != "http/protobuf" {
				return false, fmt.Errorf("%s is %q: http/protobuf is what is known here", name, p)
			}
			break
		}
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"} {
		if e, ok := env(name); ok && e != "" {
			return true, nil
		}
	}
	return exporter == "otlp", nil
}

// serviceName returns what the receiver is to call the app: OTEL_SERVICE_NAME
// or, on Azure, the site's name.
func serviceName(env func(string) (string, bool)) string {
	for _, name := range []string{"OTEL_SERVICE_NAME", "WEBSITE_SITE_NAME"} {
		if v, ok := env(name); ok && v != "" {
			return v
		}
	}
	return "functions-app"
}

// startTelemetry has cfg's worker and client write spans if the environment
// asks for it. The caller must call stop at the end.
func startTelemetry(ctx context.Context, cfg *Config) (stop func()) {
	t, err := newTelemetry(ctx, os.LookupEnv)
	if err != nil {
		cfg.Logger.Warn("no spans are written", "error", oneLine(err))
	}
	cfg.Worker.Tracing = t.tracing
	logger := cfg.Logger
	return func() {
		if err := t.flush(); err != nil {
			logger.LogAttrs(ctx, slog.LevelWarn, "not all spans were sent", slog.String("error", oneLine(err)))
		}
	}
}

// joinTrace makes the trace that a request belongs to, by its traceparent
// header, that of what it starts.
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
