package handler

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/otelenv"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/secrets"
	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel/propagation"
)

// flushTime limits the last export of telemetry at shutdown.
const flushTime = 3 * time.Second

// A Telemetry receives the spans, metrics and log records of an app. Zero fields receive nothing.
type Telemetry struct {
	// Tracing receives the spans of functions.
	Tracing durable.Tracing
	// Metrics receives the metrics of the worker and of the task hub.
	Metrics durable.Metrics
	// Logs receives the log records that the app also writes to its log, with secrets masked.
	Logs slog.Handler
	// Stop exports the remaining data before ctx ends, and ends the export. The app calls it last.
	Stop func(ctx context.Context) error
}

// startTelemetry makes the app's logger and the worker and client of cfg export telemetry to the receiver
// that start returns. Start is nil in an app without exporter. The caller must call stop before it exits.
func startTelemetry(ctx context.Context, cfg *Config, start func(context.Context, *slog.Logger) (Telemetry, error)) (stop func()) {
	log := cfg.Logger // of this process only
	if start == nil {
		warnNoExporter(log, os.LookupEnv)
		return func() {}
	}
	t, err := start(ctx, log)
	if err != nil {
		log.Warn("some of the telemetry that the environment configures is not exported", "error", secrets.Line(err))
	}
	cfg.Worker.Tracing, cfg.Worker.Metrics = t.Tracing, t.Metrics
	cfg.Storage.MeterProvider = t.Metrics.Provider
	if t.Logs != nil {
		exported := secrets.Logger(slog.New(&levelHandler{t.Logs, cfg.LogLevel}))
		cfg.Logger = slog.New(slog.NewMultiHandler(log.Handler(), exported.Handler()))
	}
	return func() {
		if t.Stop == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
		defer cancel()
		if err := t.Stop(ctx); err != nil {
			log.Warn("some telemetry was not exported", "error", secrets.Line(err))
		}
	}
}

// addExporter describes how to add an exporter to an app.
const addExporter = "import github.com/durablefunctions-go/durablefunctions/handler/otlp, set Telemetry: otlp.Export in handler.App, " +
	"and run go mod tidy"

// warnNoExporter logs a warning if env configures an export that the app cannot do, or has an invalid
// variable of OpenTelemetry.
func warnNoExporter(log *slog.Logger, env func(string) (string, bool)) {
	signals, err := otelenv.Read(env)
	message, attrs := "the environment configures the export of telemetry, but this app has no exporter: "+addExporter, []any(nil)
	if signals != (otelenv.Signals{}) {
		attrs = append(attrs, "notExported", signals.Names())
	} else {
		message = "an environment variable of OpenTelemetry is not valid: correct or remove it; this app has no exporter: to add one, " + addExporter
	}
	if err != nil {
		attrs = append(attrs, "error", secrets.Line(err))
	}
	if len(attrs) > 0 {
		log.Warn(message, attrs...)
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
