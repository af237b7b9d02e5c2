// Package otelenv reads the environment variables of OpenTelemetry that turn the export of signals on.
package otelenv

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Signals are the signals that an environment exports over OTLP.
type Signals struct{ Traces, Metrics, Logs bool }

// Read returns the signals that env exports. A signal is exported if OTEL_EXPORTER_OTLP_ENDPOINT or the
// variable of its own endpoint is set, or if its exporter, such as OTEL_TRACES_EXPORTER, is otlp. If there
// is an error, the result has the signals whose variables are valid.
func Read(env func(string) (string, bool)) (Signals, error) {
	if off, ok := env("OTEL_SDK_DISABLED"); ok {
		if b, err := strconv.ParseBool(off); err == nil && b {
			return Signals{}, nil
		}
	}
	traces, errTraces := exports(env, "TRACES")
	metrics, errMetrics := exports(env, "METRICS")
	logs, errLogs := exports(env, "LOGS")
	return Signals{traces, metrics, logs}, errors.Join(errTraces, errMetrics, errLogs)
}

// Names returns the exported signals for a log message.
func (s Signals) Names() string {
	var names []string
	for _, signal := range []struct {
		on   bool
		name string
	}{{s.Traces, "traces"}, {s.Metrics, "metrics"}, {s.Logs, "logs"}} {
		if signal.on {
			names = append(names, signal.name)
		}
	}
	return strings.Join(names, ", ")
}

// exports reports whether env exports a signal: TRACES, METRICS or LOGS.
func exports(env func(string) (string, bool), signal string) (bool, error) {
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
