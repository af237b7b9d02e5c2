// Package otlp exports the spans, metrics and log records of an app over OTLP. An app exports them if it
// sets the field Telemetry:
//
//	handler.Main(handler.App{Registrations: registrations, Telemetry: otlp.Export})
//
// The standard environment variables of OpenTelemetry configure the export. Without
// OTEL_EXPORTER_OTLP_ENDPOINT or another variable that turns a signal on, the package exports nothing. The
// protocol is http/protobuf.
//
// The exporters add about 100 packages to a program, among them gRPC and protobuf. Apps that do not import
// this package build faster and are smaller.
package otlp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/otelenv"
	"go.opentelemetry.io/contrib/bridges/otelslog"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
)

// scope names the source of the log records.
const scope = "github.com/durablefunctions-go/durablefunctions"

// Export starts the export of the signals that the environment turns on. It reports failed exports to
// errs, at most five per minute, and replaces the global error handler of OpenTelemetry. The export must
// not include errs. The result is valid even if there is an error: the error describes the signals that
// are not exported.
func Export(ctx context.Context, errs *slog.Logger) (handler.Telemetry, error) {
	signals, err := otelenv.Read(os.LookupEnv)
	if signals == (otelenv.Signals{}) {
		return handler.Telemetry{}, err
	}
	otel.SetErrorHandler(&reporter{log: errs})
	process, errProcess := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", serviceName(os.LookupEnv))),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if errProcess != nil {
		err = errors.Join(err, fmt.Errorf("describe this process to the receiver: %w", errProcess))
	}
	e := export{process: process}
	// The exporters read the other OTEL_EXPORTER_OTLP_ variables themselves.
	for _, signal := range []struct {
		on    bool
		name  string
		start func(context.Context) error
	}{{signals.Traces, "traces", e.startTraces}, {signals.Metrics, "metrics", e.startMetrics}, {signals.Logs, "logs", e.startLogs}} {
		if !signal.on {
			continue
		}
		if errStart := signal.start(ctx); errStart != nil {
			err = errors.Join(err, fmt.Errorf("start the export of %s: %w", signal.name, errStart))
		}
	}
	e.to.Stop = e.stop
	return e.to, err
}

// An export is the export of one process.
type export struct {
	process *resource.Resource
	to      handler.Telemetry
	stops   []func(context.Context) error // flush and end the export of each signal
}

func (e *export) startTraces(ctx context.Context) error {
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return err
	}
	p := trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithIDGenerator(durable.SpanIDs{}), trace.WithResource(e.process))
	e.to.Tracing.Provider, e.stops = p, append(e.stops, p.Shutdown)
	return nil
}

func (e *export) startMetrics(ctx context.Context) error {
	exporter, err := otlpmetrichttp.New(ctx)
	if err != nil {
		return err
	}
	p := metric.NewMeterProvider(metric.WithReader(metric.NewPeriodicReader(exporter)), metric.WithResource(e.process))
	e.to.Metrics.Provider, e.stops = p, append(e.stops, p.Shutdown)
	return nil
}

func (e *export) startLogs(ctx context.Context) error {
	exporter, err := otlploghttp.New(ctx)
	if err != nil {
		return err
	}
	p := log.NewLoggerProvider(log.WithProcessor(log.NewBatchProcessor(exporter)), log.WithResource(e.process))
	e.to.Logs, e.stops = &traced{Handler: otelslog.NewHandler(scope, otelslog.WithLoggerProvider(p))}, append(e.stops, p.Shutdown)
	return nil
}

// stop exports the remaining data of all signals at the same time. The receiver of one signal cannot use
// up the time of another.
func (e *export) stop(ctx context.Context) error {
	errs := make([]error, len(e.stops))
	var running sync.WaitGroup
	for i, stop := range e.stops {
		running.Go(func() { errs[i] = stop(ctx) })
	}
	running.Wait()
	return errors.Join(errs...)
}

// Limits of a reporter.
const (
	reportInterval = time.Minute
	maxReports     = 5 // per interval
)

// A reporter logs errors of the export. It omits errors above its limit: without a receiver, an export
// of log records fails every second.
type reporter struct {
	log *slog.Logger

	mu       sync.Mutex // guards the fields below
	interval time.Time  // start of the current interval
	errs     int        // in the current interval
}

// Handle implements [otel.ErrorHandler].
func (r *reporter) Handle(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	omitted := max(0, r.errs-maxReports)
	if time.Since(r.interval) >= reportInterval {
		r.interval, r.errs = time.Now(), 0
	}
	if r.errs++; r.errs <= maxReports {
		r.log.Warn("cannot export telemetry", "error", err, "omitted", omitted)
	}
}

// serviceName returns the name of the app in telemetry: OTEL_SERVICE_NAME or, on Azure, the site's name.
func serviceName(env func(string) (string, bool)) string {
	for _, name := range []string{"OTEL_SERVICE_NAME", "WEBSITE_SITE_NAME"} {
		if v, ok := env(name); ok && v != "" {
			return v
		}
	}
	return "functions-app"
}
