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

func TestTelemetry_IsOnOnlyIfTheEnvironmentAsksForIt(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want bool
		err  string
	}{
		{env: nil},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}, want: true},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://localhost:4318/v1/traces"}, want: true},
		{env: map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, want: true},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", "OTEL_TRACES_EXPORTER": "none"}},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318", "OTEL_SDK_DISABLED": "true"}},
		{env: map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, err: `OTEL_TRACES_EXPORTER is "zipkin"`},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, err: `OTEL_EXPORTER_OTLP_PROTOCOL is "grpc"`},
	} {
		on, err := newTelemetry(t.Context(), env(c.env))
		if (on.tracing.Provider != nil) != c.want {
			t.Errorf("%v: on is %v, want %v", c.env, !c.want, c.want)
		}
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%v: error is %v, want %q", c.env, err, c.err)
		}
		if err := on.flush(); err != nil {
			t.Errorf("%v: %v", c.env, err)
		}
	}
}

// The SDK reads the environment itself, so it has to be the real one.
func TestTelemetry_SendsSpansToTheReceiver(t *testing.T) {
	var mu sync.Mutex
	var paths, bodies []string
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		paths, bodies = append(paths, r.URL.Path), append(bodies, string(body))
	}))
	defer receiver.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL)
	t.Setenv("OTEL_SERVICE_NAME", "shop")
	cfg := Config{Logger: slog.New(slog.DiscardHandler)}
	stop := startTelemetry(t.Context(), &cfg)
	_, span := cfg.Worker.Tracing.Provider.Tracer("test").Start(t.Context(), "something")
	span.End()
	stop()
	mu.Lock()
	defer mu.Unlock()
	if len(paths) != 1 || paths[0] != "/v1/traces" || !strings.Contains(bodies[0], "something") || !strings.Contains(bodies[0], "shop") {
		t.Errorf("the receiver got %q at %q", bodies, paths)
	}
}

func TestTelemetry_TraceOfARequestGoesOnInWhatItStarts(t *testing.T) {
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
