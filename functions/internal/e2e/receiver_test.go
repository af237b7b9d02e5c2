//go:build unix

package e2e_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	collectorlogs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/proto"
)

func init() { http.DefaultTransport = struct{ http.RoundTripper }{http.DefaultTransport} }

// A logRecord is a log record in the form that a receiver compares.
type logRecord struct {
	severity, body, traceID string
	attrs, resource         map[string]string // with text values only
}

// An otlpReceiver is a receiver of OTLP over HTTP.
type otlpReceiver struct {
	url string

	mu      sync.Mutex // guards the fields below
	logs    []logRecord
	spans   []string            // names
	metrics map[string][]string // names of metrics by the name of their service
	refused []string            // requests that cannot be decoded
}

func startReceiver(t *testing.T) *otlpReceiver {
	t.Helper()
	r := &otlpReceiver{metrics: map[string][]string{}}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

// ServeHTTP implements [http.Handler].
func (r *otlpReceiver) ServeHTTP(_ http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch req.URL.Path {
	case "/v1/logs":
		err = r.addLogs(body)
	case "/v1/traces":
		err = r.addSpans(body)
	case "/v1/metrics":
		err = r.addMetrics(body)
	}
	if err != nil {
		r.refused = append(r.refused, req.URL.Path+": "+err.Error())
	}
}

// addLogs adds the log records in a request. mu is locked.
func (r *otlpReceiver) addLogs(body []byte) error {
	var request collectorlogs.ExportLogsServiceRequest
	if err := proto.Unmarshal(body, &request); err != nil {
		return err
	}
	for _, from := range request.GetResourceLogs() {
		resource := texts(from.GetResource().GetAttributes())
		for _, scoped := range from.GetScopeLogs() {
			for _, l := range scoped.GetLogRecords() {
				r.logs = append(r.logs, logRecord{l.GetSeverityText(), l.GetBody().GetStringValue(), hexOf(l.GetTraceId()), texts(l.GetAttributes()), resource})
			}
		}
	}
	return nil
}

// addSpans adds the names of the spans in a request. mu is locked.
func (r *otlpReceiver) addSpans(body []byte) error {
	var request collectortrace.ExportTraceServiceRequest
	if err := proto.Unmarshal(body, &request); err != nil {
		return err
	}
	for _, from := range request.GetResourceSpans() {
		for _, scoped := range from.GetScopeSpans() {
			for _, span := range scoped.GetSpans() {
				r.spans = append(r.spans, span.GetName())
			}
		}
	}
	return nil
}

// addMetrics adds the names of the metrics in a request. mu is locked.
func (r *otlpReceiver) addMetrics(body []byte) error {
	var request collectormetrics.ExportMetricsServiceRequest
	if err := proto.Unmarshal(body, &request); err != nil {
		return err
	}
	for _, from := range request.GetResourceMetrics() {
		service := texts(from.GetResource().GetAttributes())["service.name"]
		for _, scoped := range from.GetScopeMetrics() {
			for _, m := range scoped.GetMetrics() {
				r.metrics[service] = append(r.metrics[service], m.GetName())
			}
		}
	}
	return nil
}

// records returns the log records for which wanted returns true.
func (r *otlpReceiver) records(wanted func(logRecord) bool) (found []logRecord) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.logs {
		if wanted(l) {
			found = append(found, l)
		}
	}
	return found
}

// hasSpan reports whether the receiver got a span.
func (r *otlpReceiver) hasSpan(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.spans, name)
}

// hasMetric reports whether the receiver got a metric of a service.
func (r *otlpReceiver) hasMetric(service, name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.metrics[service], name)
}

// texts returns the attributes with text values.
func texts(attrs []*common.KeyValue) map[string]string {
	all := make(map[string]string, len(attrs))
	for _, a := range attrs {
		all[a.GetKey()] = a.GetValue().GetStringValue()
	}
	return all
}
