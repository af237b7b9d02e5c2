package metering

import (
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

func collect(t *testing.T, r sdk.Reader) map[string]metricdata.Aggregation {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	got := map[string]metricdata.Aggregation{}
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			got[m.Name] = m.Data
		}
	}
	return got
}

func TestMeter_RecordsWorkItems(t *testing.T) {
	reader := sdk.NewManualReader()
	m, err := New(sdk.NewMeterProvider(sdk.WithReader(reader)))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	first, second := m.Begin(Activity, clock), m.Begin(Activity, clock)
	now = now.Add(2 * time.Second)
	first("Step", Completed)
	m.RecordWait("Step", -time.Second) // clocks differ

	got := collect(t, reader)
	finished := got["durabletask.work_items"].(metricdata.Sum[int64]).DataPoints
	if len(finished) != 1 || finished[0].Value != 1 {
		t.Errorf("work items: %+v", finished)
	}
	if outcome, ok := finished[0].Attributes.Value("durabletask.outcome"); !ok || outcome.AsString() != "completed" {
		t.Errorf("outcome is %v", outcome.String())
	}
	if active := got["durabletask.work_items.active"].(metricdata.Sum[int64]).DataPoints; len(active) != 1 || active[0].Value != 1 {
		t.Errorf("active work items: %+v", active)
	}
	if took := got["durabletask.work_item.duration"].(metricdata.Histogram[float64]).DataPoints; len(took) != 1 || took[0].Sum != 2 {
		t.Errorf("durations: %+v", took)
	}
	if waited := got["durabletask.activity.wait"].(metricdata.Histogram[float64]).DataPoints; len(waited) != 1 || waited[0].Sum != 0 {
		t.Errorf("waits: %+v", waited)
	}
	m.RecordStall(Entity, "counter", StallReported)
	if stalls := collect(t, reader)["durabletask.stalls"].(metricdata.Sum[int64]).DataPoints; len(stalls) != 1 || stalls[0].Value != 1 {
		t.Errorf("stalls: %+v", stalls)
	}
	second("", Abandoned)
	if active := collect(t, reader)["durabletask.work_items.active"].(metricdata.Sum[int64]).DataPoints; active[0].Value != 0 {
		t.Errorf("active work items at the end: %+v", active)
	}
}

func TestMeter_NilDoesNothing(t *testing.T) {
	m, err := New(nil)
	if m != nil || err != nil {
		t.Fatalf("New(nil) is %v, %v", m, err)
	}
	if n := testing.AllocsPerRun(100, func() { m.Begin(Orchestration, time.Now)("", Failed); m.RecordWait("", 0) }); n != 0 {
		t.Errorf("a nil Meter allocates %v times", n)
	}
}
