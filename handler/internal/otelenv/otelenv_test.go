package otelenv

import (
	"strings"
	"testing"
)

func TestRead_ExportsOnlySignalsThatTheEnvironmentEnables(t *testing.T) {
	t.Parallel()
	const localhost = "http://localhost:4318"
	all := Signals{Traces: true, Metrics: true, Logs: true}
	for _, c := range []struct {
		env  map[string]string
		want Signals
		err  string
	}{
		{env: nil},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": localhost}, want: all},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": ""}},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": localhost}, want: Signals{Traces: true}},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": localhost}, want: Signals{Metrics: true}},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": localhost}, want: Signals{Logs: true}},
		{env: map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, want: Signals{Traces: true}},
		{env: map[string]string{"OTEL_LOGS_EXPORTER": " OTLP "}, want: Signals{Logs: true}},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": localhost, "OTEL_TRACES_EXPORTER": "none"}, want: Signals{Metrics: true, Logs: true}},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": localhost, "OTEL_SDK_DISABLED": "true"}},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": localhost, "OTEL_SDK_DISABLED": "false"}, want: all},
		{env: map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, err: `OTEL_TRACES_EXPORTER is "zipkin"`},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": localhost, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, err: `OTEL_EXPORTER_OTLP_PROTOCOL is "grpc"`},
		{
			env:  map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": localhost, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL": "http/protobuf"},
			want: Signals{Logs: true}, err: `OTEL_EXPORTER_OTLP_PROTOCOL is "grpc"`,
		},
	} {
		got, err := Read(func(name string) (string, bool) { v, ok := c.env[name]; return v, ok })
		if got != c.want {
			t.Errorf("%v: %+v, want %+v", c.env, got, c.want)
		}
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%v: error is %v, want %q", c.env, err, c.err)
		}
	}
	if got := all.Names(); got != "traces, metrics, logs" {
		t.Errorf("names are %q", got)
	}
	if got := (Signals{Metrics: true}).Names(); got != "metrics" {
		t.Errorf("names are %q", got)
	}
}
