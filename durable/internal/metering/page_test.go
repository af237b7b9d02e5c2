package metering

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/pagetable"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

var rewrite = flag.Bool("rewrite", false, "write the table of metrics into the page of the documentation")

// metricsPage is the documentation page with all metrics.
const metricsPage = "../../docs/reference-metrics.md"

func TestMetrics_ThePageHasARowForEach(t *testing.T) {
	pagetable.Check(t, metricsPage, *rewrite, map[string]string{"metrics": metricsTable(t)})
}

// metricsTable records each metric once and returns the table of all metrics.
func metricsTable(t *testing.T) string {
	t.Helper()
	reader := sdk.NewManualReader()
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	m, err := New(provider)
	if err != nil {
		t.Fatal(err)
	}
	m.Begin(Activity, time.Now)("a", Completed)
	m.Waited("a", time.Second)
	m.Stall(Orchestration, "a", GivenUp)
	h, err := NewHub(provider)
	if err != nil {
		t.Fatal(err)
	}
	recordEach(t, h)
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, s := range all.ScopeMetrics {
		for _, one := range s.Metrics {
			kind, attributes := shape(t, one.Data)
			rows[one.Name] = fmt.Sprintf("| `%s` | %s | `%s` | %s | %s |\n", one.Name, kind, one.Unit, attributes, one.Description)
		}
	}
	if n := instruments(t); len(rows) != n {
		t.Errorf("%d metrics are recorded; the source has %d", len(rows), n)
	}
	table := "| Metric | Kind | Unit | Attributes | Description |\n|---|---|---|---|---|\n"
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		table += rows[name]
	}
	return table
}

// instruments returns the number of metrics in the source code.
func instruments(t *testing.T) (n int) {
	t.Helper()
	metric := regexp.MustCompile(`(?:Counter|Gauge|Histogram)\("durabletask[a-z_.]+"`)
	for _, file := range []string{"metering.go", "hub.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		n += len(metric.FindAll(source, -1))
	}
	return n
}

// recordEach records each metric of a hub.
func recordEach(t *testing.T, h *Hub) {
	t.Helper()
	look := func(context.Context) ([]QueueState, error) {
		return []QueueState{{Queue: "q", Length: 1, Latency: time.Second}}, nil
	}
	if _, err := h.Observe(look); err != nil {
		t.Fatal(err)
	}
	h.Partition("q", Acquired)
	h.Owns("q", 1)
	h.Received("q", time.Second)
	h.LookedUp(true)
	h.HeldBack("q", Early)
	h.Poison("q")
	h.Operation("queue", "PutMessage", OK, time.Second, 2)
}

// shape returns the kind of a metric and the attributes of its first data point.
func shape(t *testing.T, data metricdata.Aggregation) (kind, attributes string) {
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
	var names []string
	for _, a := range of.ToSlice() {
		names = append(names, "`"+string(a.Key)+"`")
	}
	return kind, strings.Join(names, ", ")
}
