package handler

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

func env(values map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := values[name]
		return v, ok
	}
}

func TestTelemetry_IsOnOnlyIfTheEnvironmentEnablesIt(t *testing.T) {
	const localhost = "http://localhost:4318"
	for _, c := range []struct {
		env            map[string]string
		spans, metrics bool
		err            string
	}{
		{env: nil},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": localhost}, spans: true, metrics: true},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": localhost}, spans: true},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": localhost}, metrics: true},
		{env: map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, spans: true},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": localhost, "OTEL_TRACES_EXPORTER": "none"}, metrics: true},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": localhost, "OTEL_SDK_DISABLED": "true"}},
		{env: map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, err: `OTEL_TRACES_EXPORTER is "zipkin"`},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": localhost, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, err: `OTEL_EXPORTER_OTLP_PROTOCOL is "grpc"`},
	} {
		on, err := newTelemetry(t.Context(), env(c.env))
		if (on.tracing.Provider != nil) != c.spans || (on.metrics.Provider != nil) != c.metrics {
			t.Errorf("%v: spans %v, metrics %v; want %v and %v", c.env, on.tracing.Provider != nil, on.metrics.Provider != nil, c.spans, c.metrics)
		}
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%v: error is %v, want %q", c.env, err, c.err)
		}
	}
}

// The SDK reads the environment of the process, so the test sets it.
func TestTelemetry_SendsSpansAndMetricsToTheReceiver(t *testing.T) {
	var mu sync.Mutex
	bodies := map[string]string{}
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		bodies[r.URL.Path] += string(body)
	}))
	defer receiver.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL)
	t.Setenv("OTEL_SERVICE_NAME", "shop")
	cfg := Config{Logger: slog.New(slog.DiscardHandler)}
	stop := startTelemetry(t.Context(), &cfg)
	_, span := cfg.Worker.Tracing.Provider.Tracer("test").Start(t.Context(), "something")
	span.End()
	counter, err := cfg.Worker.Metrics.Provider.Meter("test").Int64Counter("somethings")
	if err != nil {
		t.Fatal(err)
	}
	counter.Add(t.Context(), 1)
	if cfg.Storage.MeterProvider != cfg.Worker.Metrics.Provider {
		t.Error("the hub's metrics go elsewhere than the worker's")
	}
	stop()
	mu.Lock()
	defer mu.Unlock()
	for path, want := range map[string]string{"/v1/traces": "something", "/v1/metrics": "somethings"} {
		if body := bodies[path]; !strings.Contains(body, want) || !strings.Contains(body, "shop") {
			t.Errorf("the receiver got %q at %s, want %s in it", body, path, want)
		}
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
