package handler

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

func TestTelemetry_AnAppWithoutExporterWarnsIfTheEnvironmentConfiguresOne(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		env  map[string]string
		want string
	}{
		{nil, ""},
		{map[string]string{"OTEL_SERVICE_NAME": "shop"}, ""},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", "OTEL_LOGS_EXPORTER": "none"}, `notExported="traces, metrics"`},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}, "set Telemetry: otlp.Export in handler.App"},
		{map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, `error="OTEL_TRACES_EXPORTER is \"zipkin\"; want otlp or none"`},
		{map[string]string{"OTEL_TRACES_EXPORTER": "https://a:b@c/?sig=c2VjcmV0c2VjcmV0"}, "://***@c/?sig=***"},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, `OTEL_EXPORTER_OTLP_PROTOCOL is \"grpc\"; want http/protobuf`},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", "OTEL_LOGS_EXPORTER": "console"}, `notExported="traces, metrics" error="OTEL_LOGS_EXPORTER is \"console\"`},
	} {
		var log strings.Builder
		warnNoExporter(NewLogger(&log, slog.LevelInfo), func(name string) (string, bool) { v, ok := c.env[name]; return v, ok })
		if !strings.Contains(log.String(), c.want) || (c.want == "") != (log.String() == "") {
			t.Errorf("%v: the log is %q, want %q", c.env, &log, c.want)
		}
	}
}

func TestTelemetry_ReachesTheReceiverOfTheApp(t *testing.T) {
	t.Parallel()
	var local, exported, order strings.Builder
	cfg := Config{Logger: NewLogger(&local, slog.LevelDebug), LogLevel: slog.LevelInfo}
	receiver := Telemetry{
		Tracing: durable.Tracing{Provider: trace.NewTracerProvider()}, Metrics: durable.Metrics{Provider: metric.NewMeterProvider()},
		Logs: slog.NewTextHandler(&exported, &slog.HandlerOptions{Level: slog.LevelDebug}),
		Stop: func(ctx context.Context) error {
			if _, limited := ctx.Deadline(); !limited || ctx.Err() != nil {
				t.Error("the last export has no time limit, or no time")
			}
			order.WriteString("stopped ")
			return errors.New("the receiver does not answer")
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	stop := startTelemetry(ctx, &cfg, func(_ context.Context, errs *slog.Logger) (Telemetry, error) {
		errs.Info("reported")
		return receiver, errors.New("no traces")
	})
	if cfg.Worker.Tracing != receiver.Tracing || cfg.Worker.Metrics != receiver.Metrics || cfg.Storage.MeterProvider != receiver.Metrics.Provider {
		t.Error("the worker or the hub does not use the receiver")
	}
	cfg.Logger.Debug("detail")
	cfg.Logger.With("instanceId", "i").Info("AccountKey=c2VjcmV0c2VjcmV0;")
	cancel()
	stop()
	if order.String() != "stopped " {
		t.Errorf("Stop was called %q times", &order)
	}
	if got := exported.String(); strings.Contains(got, "c2Vj") || !strings.Contains(got, "instanceId=i") || strings.Contains(got, "detail") || strings.Contains(got, "reported") {
		t.Errorf("the receiver got %q", got)
	}
	for _, want := range []string{"instanceId=i", "reported", "no traces", "some telemetry was not exported", "the receiver does not answer"} {
		if !strings.Contains(local.String(), want) {
			t.Errorf("the log is %q, want %q in it", &local, want)
		}
	}
}

func TestTelemetry_AnAppWithoutReceiverKeepsItsLogger(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	cfg := Config{Logger: log}
	startTelemetry(t.Context(), &cfg, nil)()
	startTelemetry(t.Context(), &cfg, func(context.Context, *slog.Logger) (Telemetry, error) { return Telemetry{}, nil })()
	if cfg.Logger != log || cfg.Worker.Tracing.Provider != nil || cfg.Storage.MeterProvider != nil {
		t.Error("the configuration has changed")
	}
}

func TestTelemetry_AStartedInstanceContinuesTheTraceOfTheRequest(t *testing.T) {
	written := tracetest.NewInMemoryExporter()
	p := trace.NewTracerProvider(trace.WithSyncer(written), trace.WithIDGenerator(durable.SpanIDs{}))
	cfg := fakeConfig(t, newFakeHub())
	cfg.Worker.Tracing.Provider = p
	s := readyServer(t, App{}, cfg)
	w := call(s, http.MethodPost, "/api/durabletask/orchestrators/Traced", "",
		"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if w.Code != http.StatusAccepted {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	spans := written.GetSpans()
	if len(spans) != 1 || spans[0].Name != "create_orchestration:Traced" || spans[0].Parent.SpanID().String() != "b7ad6b7169203331" {
		t.Errorf("spans are %+v", spans)
	}
}
