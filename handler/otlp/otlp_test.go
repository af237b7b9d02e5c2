package otlp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/durablefunctions-go/durablefunctions/durable/durabletest/oneprocessor"
	"github.com/durablefunctions-go/durablefunctions/handler"
	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/proto"
)

func init() { http.DefaultTransport = struct{ http.RoundTripper }{http.DefaultTransport} }

// The tests of this package set variables of the process, from which the exporters read the endpoint.

// A receiver is an OTLP receiver.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	bodies map[string][][]byte // by path
}

func startReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{bodies: map[string][][]byte{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.bodies[req.URL.Path] = append(r.bodies[req.URL.Path], body)
	}))
	t.Cleanup(r.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", r.URL)
	t.Setenv("OTEL_SERVICE_NAME", "shop")
	return r
}

// text returns all bodies that the receiver got at path.
func (r *receiver) text(path string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return string(bytes.Join(r.bodies[path], nil))
}

// logRecords returns the log records that the receiver got.
func (r *receiver) logRecords(t *testing.T) (all []*logs.LogRecord) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, body := range r.bodies["/v1/logs"] {
		var request collector.ExportLogsServiceRequest
		if err := proto.Unmarshal(body, &request); err != nil {
			t.Fatal(err)
		}
		for _, from := range request.GetResourceLogs() {
			for _, scoped := range from.GetScopeLogs() {
				all = append(all, scoped.GetLogRecords()...)
			}
		}
	}
	return all
}

// started returns the telemetry of Export and a function that stops it.
func started(t *testing.T, errs io.Writer) (_ handler.Telemetry, stop func()) {
	t.Helper()
	to, err := Export(t.Context(), slog.New(slog.NewTextHandler(errs, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return to, func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := to.Stop(ctx); err != nil {
			t.Error(err)
		}
	}
}

func TestExport_SendsEachSignalToTheReceiver(t *testing.T) {
	r := startReceiver(t)
	to, stop := started(t, io.Discard)
	_, span := to.Tracing.Provider.Tracer("test").Start(t.Context(), "something")
	span.End()
	counter, err := to.Metrics.Provider.Meter("test").Int64Counter("somethings")
	if err != nil {
		t.Fatal(err)
	}
	counter.Add(t.Context(), 1)
	slog.New(to.Logs).Info("something happened")
	stop()
	for path, want := range map[string]string{"/v1/traces": "something", "/v1/metrics": "somethings", "/v1/logs": "something happened"} {
		if body := r.text(path); !strings.Contains(body, want) || !strings.Contains(body, "shop") {
			t.Errorf("the receiver got %q at %s, want %s of shop in it", body, path, want)
		}
	}
}

func TestExport_IsOffForSignalsThatTheEnvironmentExcludes(t *testing.T) {
	r := startReceiver(t)
	t.Setenv("OTEL_TRACES_EXPORTER", "none")
	t.Setenv("OTEL_METRICS_EXPORTER", "console")
	to, err := Export(t.Context(), slog.New(slog.DiscardHandler))
	if to.Tracing.Provider != nil || to.Metrics.Provider != nil || to.Logs == nil {
		t.Errorf("the telemetry is %+v, want only logs", to)
	}
	if err == nil || !strings.Contains(err.Error(), `OTEL_METRICS_EXPORTER is "console"`) {
		t.Errorf("the error is %v", err)
	}
	if err := to.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	t.Setenv("OTEL_SDK_DISABLED", "true")
	if to, err := Export(t.Context(), slog.New(slog.DiscardHandler)); err != nil || to.Logs != nil || to.Stop != nil {
		t.Errorf("the disabled telemetry is %+v, %v", to, err)
	}
	if len(r.bodies) > 0 {
		t.Errorf("the receiver got %v", r.bodies)
	}
}

func TestExport_LogRecordsHaveTheirSeverity(t *testing.T) {
	r := startReceiver(t)
	to, stop := started(t, io.Discard)
	log := slog.New(to.Logs)
	want := []logs.SeverityNumber{
		logs.SeverityNumber_SEVERITY_NUMBER_DEBUG, logs.SeverityNumber_SEVERITY_NUMBER_INFO,
		logs.SeverityNumber_SEVERITY_NUMBER_WARN, logs.SeverityNumber_SEVERITY_NUMBER_ERROR,
	}
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		log.Log(t.Context(), level, "warned", "instanceId", "i")
	}
	stop()
	got := r.logRecords(t)
	if len(got) != len(want) {
		t.Fatalf("the receiver got %d records, want %d", len(got), len(want))
	}
	for i, record := range got {
		if record.GetSeverityNumber() != want[i] || record.GetBody().GetStringValue() != "warned" {
			t.Errorf("record %d is %v, want severity %v", i, record, want[i])
		}
		if len(record.GetAttributes()) != 1 || record.GetAttributes()[0].GetValue().GetStringValue() != "i" {
			t.Errorf("record %d has the attributes %v", i, record.GetAttributes())
		}
	}
}

func TestExport_LogRecordsHaveTheTraceOfTheirInstance(t *testing.T) {
	r := startReceiver(t)
	to, stop := started(t, io.Discard)
	const id, other = "0af7651916cd43dd8448eb211c80319c", "1bf7651916cd43dd8448eb211c80319d"
	ofOther, err := trace.TraceIDFromHex(other)
	if err != nil {
		t.Fatal(err)
	}
	inSpan := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: ofOther, SpanID: trace.SpanID{7}}))
	log := slog.New(to.Logs)
	log.With("traceId", id, "name", "F").With("more", 1).Info("of the instance")
	log.With("traceId", id).WithGroup("group").Info("in a group")
	log.With("traceId", id).InfoContext(inSpan, "in a span")
	log.WithGroup("group").With("traceId", id).Info("of something else")
	log.With("traceId", "no ID").Info("invalid")
	log.Info("of no instance")
	stop()
	want := []string{id, id, other, "", "", ""}
	got := r.logRecords(t)
	if len(got) != len(want) {
		t.Fatalf("the receiver got %d records, want %d", len(got), len(want))
	}
	for i, record := range got {
		if trace.TraceID(pad(record.GetTraceId())).String() != pad32(want[i]) {
			t.Errorf("%s: the trace ID is %x, want %q", record.GetBody().GetStringValue(), record.GetTraceId(), want[i])
		}
	}
	if span := got[2].GetSpanId(); len(span) != 8 || span[0] != 7 {
		t.Errorf("the span ID is %x", span)
	}
}

// pad returns the trace ID in b, or zeros if b is empty.
func pad(b []byte) (id [16]byte) {
	copy(id[:], b)
	return id
}

// pad32 returns id, or zeros if id is empty.
func pad32(id string) string {
	if id == "" {
		return strings.Repeat("0", 32)
	}
	return id
}

func TestExport_ReportsAFailedExportToTheLocalLog(t *testing.T) {
	r := startReceiver(t)
	r.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	var errs bytes.Buffer
	to, err := Export(t.Context(), slog.New(slog.NewTextHandler(&errs, nil)))
	if err != nil {
		t.Fatal(err)
	}
	slog.New(to.Logs).Info("something happened")
	errStop := to.Stop(t.Context())
	if errStop == nil && !strings.Contains(errs.String(), "cannot export telemetry") {
		t.Errorf("no report of the failed export; the log is %q", &errs)
	}
}

// The receiver of traces answers only after the log records have arrived.
func TestExport_StopSendsEachSignalWhileAnotherReceiverDoesNotAnswer(t *testing.T) {
	r := startReceiver(t)
	arrived, ended := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(ended) }) // before the receiver closes
	accept := r.Config.Handler
	r.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		accept.ServeHTTP(w, req)
		switch req.URL.Path {
		case "/v1/logs":
			close(arrived)
		case "/v1/traces":
			select {
			case <-arrived:
			case <-ended:
			}
		}
	})
	const hour = "3600000"                     // in milliseconds
	t.Setenv("OTEL_BLRP_SCHEDULE_DELAY", hour) // only the stop sends the record
	t.Setenv("OTEL_BSP_EXPORT_TIMEOUT", hour)
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", hour)
	to, stop := started(t, io.Discard)
	_, span := to.Tracing.Provider.Tracer("test").Start(t.Context(), "something")
	span.End()
	slog.New(to.Logs).Info("stopped")
	stop()
	if got := r.logRecords(t); len(got) != 1 || got[0].GetBody().GetStringValue() != "stopped" {
		t.Errorf("the receiver got the records %v", got)
	}
	if !strings.Contains(r.text("/v1/traces"), "something") {
		t.Error("the receiver got no span")
	}
}

func TestReporter_LimitsTheReportsOfAReceiverThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		r := &reporter{log: slog.New(slog.NewTextHandler(&log, nil))}
		for range 180 {
			r.Handle(errors.New("connection refused"))
			time.Sleep(time.Second)
		}
		if n := strings.Count(log.String(), "connection refused"); n != 3*maxReports {
			t.Errorf("three minutes have %d reports, want %d", n, 3*maxReports)
		}
		if n := strings.Count(log.String(), "omitted=55"); n != 2 {
			t.Errorf("%d reports have the number of omitted ones, want 2:\n%s", n, &log)
		}
	})
}
