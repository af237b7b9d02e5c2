package metering

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/pagetable"
	"github.com/google/go-cmp/cmp"
)

// The files, and the page with a table, that the tests generate from the definitions of the metrics.
const (
	alertsFile    = "../../../handler/prometheus/alerts.yml"
	dashboardFile = "../../../handler/prometheus/dashboard.json"
	alertsPage    = "../../docs/operate-prometheus.md"
)

// An alert is a rule for Prometheus. Its expression has the names of metrics and attributes in the code.
type alert struct {
	name     string
	when     string // condition, for the documentation
	expr     string
	hold     string // duration of the state until the alert fires; empty means none
	severity string
	summary  string
	action   string
}

var alerts = []alert{
	{
		name: "DurableOrchestrationFailed", when: "An orchestration failed in the last 10 minutes.",
		severity: "warning",
		expr:     `sum by (job, durabletask.task.name) (increase(durabletask.work_items{durabletask.type="orchestration",durabletask.outcome="failed"}[10m])) > 0`,
		summary:  "Orchestrations {{ $labels.durabletask_task_name }} failed.",
		action:   "Find the instances with `hub list --status Failed`, correct the cause, and rewind them.",
	},
	{
		name: "DurableStartsWait", when: "For 5 minutes, an instance has been due for more than 15 minutes and has not started.",
		severity: "critical", hold: "5m",
		expr:    `max by (job, durabletask.queue) (durabletask.queue.start.latency) > 900`,
		summary: "An instance in {{ $labels.durabletask_queue }} has been due for 15 minutes and has not started.",
		action:  "Run `hub why --stuck` to see what it waits for.",
	},
	{
		name: "DurableBacklog", when: "For 10 minutes, the first message of a queue has waited longer than a minute.",
		severity: "warning", hold: "10m",
		expr:    `max by (job, durabletask.queue) (durabletask.queue.latency) > 60`,
		summary: "Messages in {{ $labels.durabletask_queue }} wait longer than a minute.",
		action:  "Add workers, or raise the limits of concurrent activities and orchestrators.",
	},
	{
		name: "DurablePartitionWithoutOwner", when: "For 5 minutes, no worker has owned a partition.",
		severity: "critical", hold: "5m",
		expr:    `max by (job) (durabletask.partitions.unowned) > 0`,
		summary: "{{ $value }} partitions of the task hub have no owner. Their instances do not continue.",
		action:  "The log and `health/ready` of the workers name the reason.",
	},
	{
		name: "DurableStorageErrors", when: "For 5 minutes, more than 5 % of the storage requests have failed.",
		severity: "warning", hold: "5m",
		expr: `sum by (job) (rate(durabletask.storage.operation.duration_count{durabletask.outcome=~"throttled|refused|no_answer"}[5m]))` +
			` / sum by (job) (rate(durabletask.storage.operation.duration_count[5m])) > 0.05`,
		summary: "More than 5 % of the storage requests fail.",
		action:  "Check the storage account: its limits, its firewall and the roles of the app's identity.",
	},
	{
		name: "DurableNonDeterminism", when: "An orchestrator deviated from a history in the last 10 minutes, or instances wait for matching code.",
		severity: "critical",
		expr: `sum by (job, durabletask.task.name) (increase(durabletask.non_determinism[10m])) > 0` +
			` or sum by (job, durabletask.task.name) (durabletask.instances.waiting{durabletask.reason="different"}) > 0`,
		summary: "The code of {{ $labels.durabletask_task_name }} does not match the history of instances.",
		action:  "Deploy the previous code. `hub why ID` shows the difference.",
	},
	{
		name: "DurableOrchestratorBlocked", when: "For 5 minutes, an orchestrator or entity has not yielded.",
		severity: "critical", hold: "5m",
		expr:    `sum by (job, durabletask.task.name) (durabletask.instances.waiting{durabletask.reason="blocked"}) > 0`,
		summary: "{{ $labels.durabletask_task_name }} does not yield. {{ $value }} instances do not continue.",
		action:  "`health/ready` has the stack. Correct the code, deploy it, then suspend and resume the instances.",
	},
	{
		name: "DurableInstancesWait", when: "For 15 minutes, instances have waited for a function that no worker runs.",
		severity: "warning", hold: "15m",
		expr:    `sum by (job, durabletask.task.name, durabletask.reason) (durabletask.instances.waiting{durabletask.reason=~"unknown|refused|crashed"}) > 0`,
		summary: "{{ $value }} instances wait for {{ $labels.durabletask_task_name }}: {{ $labels.durabletask_reason }}.",
		action:  "Deploy a worker with the function and its version. Correct a function that crashed the process, then run `hub crashes --forget`.",
	},
	{
		name: "DurableUndecodableMessages", when: "A worker cannot decode a message.",
		severity: "critical",
		expr:     `sum by (job) (max by (job, durabletask.queue) (durabletask.messages.undecodable)) > 0`,
		summary:  "The workers cannot decode at least {{ $value }} messages.",
		action:   "`health/ready` lists them. Deploy a version that can decode them, then run `hub retry-undecodable` for messages that were set aside.",
	},
	{
		name: "DurableDiskSpace", when: "For 5 minutes, the disk of a local file has had less than 1 GiB of free space.",
		severity: "critical", hold: "5m",
		expr:    `min by (job, instance) (durabletask.disk.free) < 1073741824`,
		summary: "The disk of the task hub has less than 1 GiB of free space.",
		action:  "Purge ended instances and run `hub compact`, or enlarge the disk. Work stops while the disk is full.",
	},
}

// codeName matches a name of a metric or attribute.
var codeName = regexp.MustCompile(`durabletask(?:\.[a-z_]+)+`)

// inPrometheus replaces the names of metrics and attributes in an expression.
func inPrometheus(t *testing.T, expr string, all []definition) string {
	t.Helper()
	return codeName.ReplaceAllStringFunc(expr, func(name string) string {
		short := strings.TrimSuffix(name, "_count")
		for _, d := range all {
			if d.name == short {
				return d.prometheus + strings.TrimPrefix(name, short)
			}
		}
		if !slices.ContainsFunc(all, func(d definition) bool { return slices.Contains(d.attributes, name) }) {
			t.Errorf("no metric or attribute is named %s", name)
		}
		return label(name)
	})
}

// label returns the name of an attribute in Prometheus.
func label(attribute string) string { return strings.ReplaceAll(attribute, ".", "_") }

// checkFile compares a generated file with the wanted text, or writes it.
func checkFile(t *testing.T, file, want string) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is not current; run the package's tests with -rewrite (-want +got):\n%s", file, diff)
	}
}

func TestAlerts_TheFileHasTheRules(t *testing.T) {
	all := definitions(t)
	var text strings.Builder
	text.WriteString("# Alert rules for apps that serve their metrics to Prometheus. The tests generate this file; do not edit it.\n" +
		"groups:\n  - name: durablefunctions\n    rules:\n")
	for _, a := range alerts {
		fmt.Fprintf(&text, "      - alert: %s\n        expr: >-\n          %s\n", a.name, inPrometheus(t, a.expr, all))
		if a.hold != "" {
			fmt.Fprintf(&text, "        for: %s\n", a.hold)
		}
		fmt.Fprintf(&text, "        labels:\n          severity: %s\n        annotations:\n          summary: %q\n          description: %q\n", a.severity, a.summary, a.action)
	}
	checkFile(t, alertsFile, text.String())
	table := "| Alert | Severity | Fires when | Action |\n|---|---|---|---|\n"
	for _, a := range alerts {
		table += fmt.Sprintf("| `%s` | %s | %s | %s |\n", a.name, a.severity, a.when, a.action)
	}
	pagetable.Check(t, alertsPage, *rewrite, map[string]string{"alerts": table})
}

// aggregations are the operators that combine the values of workers. The others are summed up.
var aggregations = map[string]string{
	"durabletask.disk.free": "min", "durabletask.messages.undecodable": "max", "durabletask.partitions.unowned": "max", "durabletask.queue.latency": "max",
	"durabletask.queue.length": "max", "durabletask.queue.start.latency": "max",
}

// chart returns the panel of a metric in the dashboard, at a position in the grid.
func chart(d definition, number int) map[string]any {
	labels, legend := "", "total"
	for i, a := range d.attributes {
		if i == 0 {
			legend = ""
		}
		labels, legend = labels+", "+label(a), strings.TrimSpace(legend+" {{"+label(a)+"}}")
	}
	labels = strings.TrimPrefix(labels, ", ")
	unit := map[string]string{"s": "s", "By": "bytes"}[d.unit]
	target := func(expr, legend string) map[string]any {
		return map[string]any{"refId": legend, "expr": expr, "legendFormat": legend, "datasource": map[string]any{"type": "prometheus", "uid": "${source}"}}
	}
	operator := aggregations[d.name]
	if operator == "" {
		operator = "sum"
	}
	var targets []any
	switch d.kind {
	case "counter":
		targets = append(targets, target(fmt.Sprintf(`sum by (%s) (rate(%s{job=~"$job"}[$__rate_interval]))`, labels, d.prometheus), legend))
		unit = "ops"
	case "histogram":
		for _, q := range []string{"0.5", "0.95", "0.99"} {
			targets = append(targets, target(fmt.Sprintf(`histogram_quantile(%s, sum by (le) (rate(%s_bucket{job=~"$job"}[$__rate_interval])))`, q, d.prometheus), q))
		}
	default:
		targets = append(targets, target(fmt.Sprintf(`%s by (%s) (%s{job=~"$job"})`, operator, labels, d.prometheus), legend))
	}
	title := strings.TrimPrefix(d.name, "durabletask.")
	return map[string]any{
		"id": number + 1, "type": "timeseries", "title": title, "description": d.description, "targets": targets,
		"datasource":  map[string]any{"type": "prometheus", "uid": "${source}"},
		"gridPos":     map[string]any{"x": number % 2 * 12, "y": number / 2 * 8, "w": 12, "h": 8},
		"fieldConfig": map[string]any{"defaults": map[string]any{"unit": unit, "min": 0}, "overrides": []any{}},
		"options":     map[string]any{"legend": map[string]any{"displayMode": "list", "placement": "bottom"}, "tooltip": map[string]any{"mode": "multi"}},
	}
}

func TestDashboard_TheFileHasAPanelForEachMetric(t *testing.T) {
	all := definitions(t)
	var panels []any
	for i, d := range all {
		panels = append(panels, chart(d, i))
	}
	for name := range aggregations {
		if !slices.ContainsFunc(all, func(d definition) bool { return d.name == name }) {
			t.Errorf("no metric is named %s", name)
		}
	}
	dashboard := map[string]any{
		"uid": "durablefunctions", "title": "Durable Functions", "schemaVersion": 39, "version": 1, "editable": true, "refresh": "30s",
		"time": map[string]any{"from": "now-6h", "to": "now"}, "panels": panels,
		"templating": map[string]any{"list": []any{
			map[string]any{"name": "source", "type": "datasource", "query": "prometheus", "label": "Data source"},
			map[string]any{
				"name": "job", "type": "query", "label": "App", "multi": true, "includeAll": true, "refresh": 2, "current": map[string]any{},
				"datasource": map[string]any{"type": "prometheus", "uid": "${source}"}, "query": "label_values(durabletask_work_items_total, job)",
			},
		}},
	}
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(dashboard); err != nil {
		t.Fatal(err)
	}
	checkFile(t, dashboardFile, text.String())
}
