//go:build unix

package e2e_test

import (
	"encoding/hex"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/handler/processtest"
)

func hexOf(b []byte) string { return hex.EncodeToString(b) }

// tracedBy is the trace that [startTraced] uses.
const tracedBy = "0af7651916cd43dd8448eb211c80319c"

// startTraced starts an instance as part of a trace.
func (a *app) startTraced(name, input string) checkStatus {
	a.t.Helper()
	r, err := http.NewRequestWithContext(a.t.Context(), http.MethodPost, a.url+"/api/durabletask/orchestrators/"+name, strings.NewReader(input))
	if err != nil {
		a.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("traceparent", "00-"+tracedBy+"-b7ad6b7169203331-01")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		a.t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusAccepted {
		a.t.Fatalf("start %s: status %d", name, answer.StatusCode)
	}
	return checkStatus{StatusQueryGetURI: answer.Header.Get("Location")}
}

func TestTelemetry_AnAppSendsLogsWithSeverityAndTrace(t *testing.T) {
	t.Parallel()
	r := startReceiver(t)
	a := startStandalone(t, e2eApp, newRoot(t, newHub(), "", nil), "OTEL_EXPORTER_OTLP_ENDPOINT="+r.url, "OTEL_SERVICE_NAME=shop", "OTEL_BLRP_SCHEDULE_DELAY=100")
	started := a.startTraced("LogsAndFails", `"the customer was warned"`)
	a.await(started.StatusQueryGetURI, 30*time.Second)
	r.awaitLogsOf(t, "LogsAndFails")
	signal(t, a.cmd.Process.Pid, "-TERM") // flushes
	eventually(t, 30*time.Second, "the end of the app", a.ended)

	if !r.hasSpan("orchestration:LogsAndFails") || len(r.refused) > 0 {
		t.Errorf("spans %v, refused %v", r.spans, r.refused)
	}
	if n := len(r.records(func(l logRecord) bool { return l.severity == "ERROR" })); n != 2 {
		t.Errorf("the receiver got %d errors; want that of the function and the end", n)
	}
}

// awaitLogsOf waits for a record of each severity of a function, and checks their fields.
func (r *otlpReceiver) awaitLogsOf(t *testing.T, function string) {
	t.Helper()
	for severity, body := range map[string]string{"INFO": "information that warns", "WARN": "warning of the function", "ERROR": "error that warns"} {
		eventually(t, 30*time.Second, severity+" record", func() bool {
			return len(r.records(func(l logRecord) bool {
				return l.body == body && l.severity == severity && l.attrs["name"] == function && l.attrs["taskHub"] != "" && l.attrs["instanceId"] != "" && l.traceID == tracedBy
			})) == 1
		})
	}
	eventually(t, 30*time.Second, "the record of the end", func() bool {
		return len(r.records(func(l logRecord) bool {
			return l.body == "orchestration ended" && l.severity == "ERROR" && l.attrs["name"] == function && l.traceID == tracedBy && strings.Contains(l.attrs["error"], "warned")
		})) == 1
	})
}

// An app sends to a collector, which sends to the receiver.
func TestTelemetry_ACollectorGetsEachSignalOfTheApp(t *testing.T) {
	processtest.SkipInShortRuns(t)
	t.Parallel()
	r := startReceiver(t)
	c := startCollector(t, r.url)
	a := startStandalone(t, e2eApp, newRoot(t, newHub(), "", nil), "OTEL_EXPORTER_OTLP_ENDPOINT="+c, "OTEL_METRICS_EXPORTER=otlp",
		"OTEL_METRIC_EXPORT_INTERVAL=500", "OTEL_SERVICE_NAME=shop", "OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=trial")
	a.await(a.startTraced("LogsAndFails", `"the customer was warned"`).StatusQueryGetURI, 30*time.Second)
	eventually(t, 30*time.Second, "the metrics", func() bool {
		return r.hasMetric("shop", "durabletask.work_items") && r.hasMetric("shop", "durabletask.queue.length")
	})
	signal(t, a.cmd.Process.Pid, "-TERM") // flushes
	eventually(t, 30*time.Second, "the end of the app", a.ended)

	r.awaitLogsOf(t, "LogsAndFails")
	eventually(t, 30*time.Second, "the last record of the app", func() bool {
		return len(r.records(func(l logRecord) bool { return l.body == "stopped" })) == 1
	})
	for _, l := range r.records(func(logRecord) bool { return true }) {
		if l.resource["service.name"] != "shop" || l.resource["deployment.environment.name"] != "trial" {
			t.Errorf("record %q has the resource %v", l.body, l.resource)
		}
	}
	eventually(t, 30*time.Second, "the span", func() bool { return r.hasSpan("orchestration:LogsAndFails") })
	if len(r.refused) > 0 {
		t.Errorf("refused %v", r.refused)
	}
}

func TestTelemetry_AnAppWithoutExporterSaysHowToAddIt(t *testing.T) {
	t.Parallel()
	a := startStandalone(t, sampleApp, newRoot(t, newHub(), "", nil), "OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318")
	if !strings.Contains(a.log(), "set Telemetry: otlp.Export in handler.App") {
		t.Error("the log has no warning")
	}
}

// setHost sets members of host.json.
func setHost(t *testing.T, root string, members map[string]any) {
	t.Helper()
	path := filepath.Join(root, "host.json")
	var host map[string]any
	readJSON(t, path, &host)
	for name, value := range members {
		host[name] = value
	}
	writeJSON(t, path, host)
}

// hostLog returns the log files that the host wrote below the folder for temporary files.
func hostLog(t *testing.T, temp string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(temp, "LogFiles", "Application", "Functions", "Host", "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

// Each line of the app has its severity in the log of the host.
func TestHost_LogsEachLineOfTheAppWithItsSeverity(t *testing.T) {
	processtest.SkipInShortRuns(t)
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			root, temp := newRoot(t, newHub(), azuritetest.Start(t), nil), t.TempDir()
			setHost(t, root, map[string]any{"logging": map[string]any{"fileLoggingMode": "always", "logLevel": map[string]any{"default": "Information"}}})
			a := launchHost(t, e2eApp, root, []string{"TMPDIR=" + temp, "DURABLE_LOG_FORMAT=" + format})
			eventually(t, 90*time.Second, "an answer of the app below the host", func() bool {
				got, err := a.try(http.MethodGet, "/api/durabletask/instances", nil)
				return err == nil && got.status == http.StatusOK
			})
			started := a.start("LogsAndFails", "the customer was warned")
			a.await(started.StatusQueryGetURI, 30*time.Second)
			line := regexp.MustCompile(`(?m)^\S+ \[(\w+)\] .*level"?[=:]"?(INFO|WARN|ERROR)\b.*$`)
			severities := map[string]string{"INFO": "Information", "WARN": "Warning", "ERROR": "Error"}
			var last string
			eventually(t, 30*time.Second, "two errors in the log of the host", func() bool {
				last = hostLog(t, temp)
				found := map[string]int{}
				for _, m := range line.FindAllStringSubmatch(last, -1) {
					if m[1] != severities[m[2]] {
						t.Fatalf("the host logs this line as %s: %s", m[1], m[0])
					}
					found[m[2]]++
				}
				return found["INFO"] > 0 && found["WARN"] > 0 && found["ERROR"] == 2
			})
			for _, want := range map[string][]string{"text": {`w\x61rned`}, "json": {`w\u0061rned`}}[format] {
				if !strings.Contains(last, want) {
					t.Errorf("the log of the host has no %s: %s", want, processtest.LastLines(last))
				}
			}
		})
	}
}

// With telemetryMode, the host and the app send to one receiver. The host also sends the lines of the app, unless
// host.json turns them off.
func TestHost_SendsItsTelemetryBesideThatOfTheApp(t *testing.T) {
	processtest.SkipInShortRuns(t)
	t.Parallel()
	t.Run("with lines", func(t *testing.T) {
		r := startReceiver(t)
		runBelowHost(t, r, r.url, nil)
		for own, host := range map[string]string{"INFO": "Information", "WARN": "Warning", "ERROR": "Error"} {
			isLine := func(l logRecord) bool { return strings.Contains(l.body, "level="+own) }
			eventually(t, 30*time.Second, host+" record of the host", func() bool { return len(r.records(isLine)) > 0 })
			for _, l := range r.records(isLine) {
				if l.severity != host {
					t.Errorf("the host sends this line as %s: %s", l.severity, l.body)
				}
			}
		}
	})
	t.Run("without lines, through a collector", func(t *testing.T) {
		r := startReceiver(t)
		runBelowHost(t, r, startCollector(t, r.url), map[string]any{"Host.Function.Console": "None"})
		eventually(t, 30*time.Second, "a record of the host", func() bool {
			return len(r.records(func(l logRecord) bool { return l.severity == "Information" })) > 0
		})
		if lines := r.records(func(l logRecord) bool { return strings.Contains(l.body, "level=") }); len(lines) > 0 {
			t.Errorf("the host sends lines of the app: %v", lines)
		}
	})
}

// runBelowHost runs an instance below the host with telemetryMode and an endpoint, and waits until the receiver has
// the app's records of it.
func runBelowHost(t *testing.T, r *otlpReceiver, endpoint string, levels map[string]any) {
	t.Helper()
	root := newRoot(t, newHub(), azuritetest.Start(t), nil)
	setHost(t, root, map[string]any{"telemetryMode": "OpenTelemetry", "logging": map[string]any{"logLevel": levels}})
	a := launchHost(t, e2eApp, root, []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", "OTEL_BLRP_SCHEDULE_DELAY=100",
	})
	eventually(t, 90*time.Second, "an answer of the app below the host", func() bool {
		got, err := a.try(http.MethodGet, "/api/durabletask/instances", nil)
		return err == nil && got.status == http.StatusOK
	})
	a.await(a.startTraced("LogsAndFails", `"the customer was warned"`).StatusQueryGetURI, 30*time.Second)
	for _, severity := range []string{"INFO", "WARN", "ERROR"} {
		eventually(t, 30*time.Second, severity+" record of the app", func() bool {
			return len(r.records(func(l logRecord) bool { return l.severity == severity && l.attrs["name"] == "LogsAndFails" })) > 0
		})
	}
}
