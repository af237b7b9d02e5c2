package metering

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/pagetable"
	"github.com/durablefunctions-go/durablefunctions/handler/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

var rewrite = flag.Bool("rewrite", false, "write the table of metrics into the page of the documentation, and the dashboard and the alert rules")

// metricsPage is the documentation page with all metrics.
const metricsPage = "../../docs/reference-metrics.md"

func TestMetrics_ThePageHasARowForEach(t *testing.T) {
	pagetable.Check(t, metricsPage, *rewrite, map[string]string{"metrics": metricsTable(t)})
}

// A definition describes a metric as a collector receives it.
type definition struct {
	name, kind, unit, description string
	attributes                    []string
	prometheus                    string // name of the metric in Prometheus, without the suffixes of histograms
}

// definitions records each metric once and returns the definitions of all metrics, sorted by name.
func definitions(t *testing.T) (all []definition) {
	t.Helper()
	reader, page := sdk.NewManualReader(), prometheus.New()
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	recordAll(t, provider)
	recordAll(t, page)
	w := httptest.NewRecorder()
	page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	names := map[string]string{} // in Prometheus, by description
	for line := range strings.SplitSeq(w.Body.String(), "\n") {
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, description, _ := strings.Cut(rest, " ")
			names[description] = name
		}
	}
	var data metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &data); err != nil {
		t.Fatal(err)
	}
	for _, s := range data.ScopeMetrics {
		for _, one := range s.Metrics {
			d := definition{name: one.Name, unit: one.Unit, description: one.Description, prometheus: names[one.Description]}
			d.kind, d.attributes = shape(t, one.Data)
			if d.prometheus == "" {
				t.Errorf("the page for Prometheus lacks %s", d.name)
			}
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(a, b definition) int { return strings.Compare(a.name, b.name) })
	if n := instruments(t); len(all) != n {
		t.Errorf("%d metrics are recorded; the source has %d", len(all), n)
	}
	return all
}

// recordAll records each metric once.
func recordAll(t *testing.T, p metric.MeterProvider) {
	t.Helper()
	m, err := New(p)
	if err != nil {
		t.Fatal(err)
	}
	m.Begin(Activity, time.Now)("a", Completed)
	m.RecordWait("a", time.Second)
	m.RecordStall(Orchestration, "a", StallAbandoned)
	m.NonDeterministic("a")
	if _, err := m.ObserveWaiting(func() []WaitingInstances { return []WaitingInstances{{Orchestration, "a", Blocked, 1}} }); err != nil {
		t.Fatal(err)
	}
	h, err := NewHub(p)
	if err != nil {
		t.Fatal(err)
	}
	recordEach(t, h)
}

// metricsTable returns the table of all metrics.
func metricsTable(t *testing.T) string {
	t.Helper()
	table := "| Metric | Kind | Unit | Attributes | Description |\n|---|---|---|---|---|\n"
	for _, d := range definitions(t) {
		var attributes []string
		for _, a := range d.attributes {
			attributes = append(attributes, "`"+a+"`")
		}
		table += fmt.Sprintf("| `%s` | %s | `%s` | %s | %s |\n", d.name, d.kind, d.unit, strings.Join(attributes, ", "), d.description)
	}
	return table
}

// instruments returns the number of metrics in the source code.
func instruments(t *testing.T) (n int) {
	t.Helper()
	created := regexp.MustCompile(`(?:Counter|Gauge|Histogram)\("durabletask[a-z_.]+"`)
	for _, file := range []string{"metering.go", "hub.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		n += len(created.FindAll(source, -1))
	}
	return n
}

// recordEach records each metric of a hub.
func recordEach(t *testing.T, h *Hub) {
	t.Helper()
	look := func(context.Context) HubState {
		return HubState{
			Queues:  []QueueState{{Queue: "q", Length: 1, Latency: time.Second, StartLatency: new(time.Second)}},
			Unowned: new(1), Undecodable: map[string]int{"q": 1}, DiskFree: new(int64(1)),
		}
	}
	if _, err := h.Observe(look); err != nil {
		t.Fatal(err)
	}
	h.RecordOwnership("q", Acquired)
	h.AddOwned("q", 1)
	h.RecordReceived("q", time.Second)
	h.RecordLookup(true)
	h.RecordHeldBack("q", Early)
	h.RecordPoison("q")
	h.RecordOperation("queue", "PutMessage", OK, time.Second, 2)
}

// shape returns the kind of a metric and the attributes of its first data point.
func shape(t *testing.T, data metricdata.Aggregation) (kind string, attributes []string) {
	t.Helper()
	var of attribute.Set
	switch data := data.(type) {
	case metricdata.Sum[int64]:
		kind, of = "up-down counter", data.DataPoints[0].Attributes
		if data.IsMonotonic {
			kind = "counter"
		}
	case metricdata.Gauge[int64]:
		kind, of = "gauge", data.DataPoints[0].Attributes
	case metricdata.Gauge[float64]:
		kind, of = "gauge", data.DataPoints[0].Attributes
	case metricdata.Histogram[float64]:
		kind, of = "histogram", data.DataPoints[0].Attributes
	default:
		t.Fatalf("unknown kind of metric %T", data)
	}
	for _, a := range of.ToSlice() {
		attributes = append(attributes, string(a.Key))
	}
	return kind, attributes
}
