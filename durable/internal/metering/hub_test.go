package metering

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	_ "github.com/durablefunctions-go/durablefunctions/durable/durabletest/oneprocessor"
)

// lines returns the recorded metrics, one data point per line.
func lines(got map[string]metricdata.Aggregation) []string {
	var out []string
	add := func(name string, of attribute.Set, value any) {
		var attrs []string
		for _, a := range of.ToSlice() {
			attrs = append(attrs, strings.TrimPrefix(string(a.Key), "durabletask.")+"="+a.Value.String())
		}
		out = append(out, fmt.Sprintf("%s %s: %v", strings.TrimPrefix(name, "durabletask."), strings.Join(attrs, " "), value))
	}
	for name, data := range got {
		switch data := data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				add(name, p.Attributes, p.Value)
			}
		case metricdata.Gauge[int64]:
			for _, p := range data.DataPoints {
				add(name, p.Attributes, p.Value)
			}
		case metricdata.Gauge[float64]:
			for _, p := range data.DataPoints {
				add(name, p.Attributes, p.Value)
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				add(name, p.Attributes, fmt.Sprintf("%d, %v s", p.Count, p.Sum))
			}
		}
	}
	slices.Sort(out)
	return out
}

func TestHub_RecordsAllMetrics(t *testing.T) {
	reader := sdk.NewManualReader()
	h, err := NewHub(sdk.NewMeterProvider(sdk.WithReader(reader)))
	if err != nil {
		t.Fatal(err)
	}
	stop, err := h.Observe(func(context.Context) HubState {
		return HubState{
			Queues:  []QueueState{{Queue: "q", Length: 3, Latency: 2 * time.Second, StartLatency: new(time.Second)}, {Queue: "r"}},
			Unowned: new(0), Undecodable: map[string]int{"q": 4}, DiskFree: new(int64(5)),
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	h.RecordOwnership("q", Acquired)
	h.AddOwned("q", 1)
	h.RecordReceived("q", -time.Second) // clocks differ
	h.RecordLookup(true)
	h.RecordLookup(false)
	h.RecordHeldBack("q", Unreadable)
	h.RecordPoison("q")
	h.RecordOperation("queue", "PutMessage", Throttled, time.Second, 1)
	h.RecordOperation("queue", "PutMessage", OK, time.Second, 2)
	want := []string{
		"disk.free : 5",
		"history_cache.lookups cache.hit=false: 1",
		"history_cache.lookups cache.hit=true: 1",
		"messages.held_back queue=q reason=unreadable: 1",
		"messages.poison queue=q: 1",
		"messages.undecodable queue=q: 4",
		"partitions.changes partition.change=acquired queue=q: 1",
		"partitions.owned queue=q: 1",
		"partitions.unowned : 0",
		"queue.latency queue=q: 2",
		"queue.latency queue=r: 0",
		"queue.length queue=q: 3",
		"queue.length queue=r: 0",
		"queue.message.age queue=q: 1, 0 s",
		"queue.start.latency queue=q: 1",
		"storage.operation.duration outcome=ok storage.operation=PutMessage storage.service=queue: 1, 1 s",
		"storage.operation.duration outcome=throttled storage.operation=PutMessage storage.service=queue: 1, 1 s",
		"storage.retries storage.operation=PutMessage storage.service=queue: 1",
	}
	if diff := cmp.Diff(lines(collect(t, reader)), want); diff != "" {
		t.Errorf("metrics (-recorded +want):\n%s", diff)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if _, ok := collect(t, reader)["durabletask.queue.length"]; ok {
		t.Error("the queues are observed after stop")
	}
}

// A collector may collect every second, and several may collect at the same time.
func TestHub_LooksAtTheHubAtMostOncePer30Seconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader, looks := sdk.NewManualReader(), 0
		h, err := NewHub(sdk.NewMeterProvider(sdk.WithReader(reader)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Observe(func(context.Context) HubState {
			if looks++; looks == 3 {
				return HubState{Undecodable: map[string]int{"q": 3}}
			}
			return HubState{Queues: []QueueState{{Queue: "q", Length: looks}}, Undecodable: map[string]int{"q": looks}}
		}); err != nil {
			t.Fatal(err)
		}
		for second := range 150 {
			var all metricdata.ResourceMetrics
			if err := reader.Collect(t.Context(), &all); err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, m := range all.ScopeMetrics[0].Metrics {
				if g, ok := m.Data.(metricdata.Gauge[int64]); ok {
					got += fmt.Sprint(" ", m.Name, " ", g.DataPoints[0].Value)
				}
			}
			n := second/30 + 1
			length := n
			if n == 3 {
				length = 2
			}
			want := fmt.Sprintf(" durabletask.queue.length %d durabletask.messages.undecodable %d", length, n)
			if got != want {
				t.Errorf("second %d:%s, want%s", second, got, want)
			}
			time.Sleep(time.Second)
		}
		if looks != 5 {
			t.Errorf("%d looks in 150 seconds, want 5", looks)
		}
	})
}

// A gauge that vanishes restarts the duration after which an alert fires.
func TestHub_ReportsTheLastStateForFiveMinutesIfLaterLooksFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := sdk.NewManualReader()
		h, err := NewHub(sdk.NewMeterProvider(sdk.WithReader(reader)))
		if err != nil {
			t.Fatal(err)
		}
		state := HubState{Queues: []QueueState{{Queue: "q", Length: 1}, {Queue: "r", Length: 2}}, Unowned: new(3), DiskFree: new(int64(4))}
		if _, err := h.Observe(func(context.Context) HubState { return state }); err != nil {
			t.Fatal(err)
		}
		gauges := func() []string {
			return slices.DeleteFunc(lines(collect(t, reader)), func(line string) bool { return strings.HasPrefix(line, "queue.latency") })
		}
		all := []string{"disk.free : 4", "partitions.unowned : 3", "queue.length queue=q: 1", "queue.length queue=r: 2"}
		if diff := cmp.Diff(gauges(), all); diff != "" {
			t.Errorf("after the first look (-recorded +want):\n%s", diff)
		}
		state = HubState{}
		for range 9 {
			time.Sleep(LookEvery)
			if diff := cmp.Diff(gauges(), all); diff != "" {
				t.Errorf("after a failed look (-recorded +want):\n%s", diff)
			}
		}
		time.Sleep(LookEvery)
		if got := gauges(); len(got) > 0 {
			t.Errorf("5 minutes after the last successful look: %q, want none", got)
		}
		state = HubState{Queues: []QueueState{{Queue: "r", Length: 5}}, Unowned: new(0)}
		time.Sleep(LookEvery)
		if diff := cmp.Diff(gauges(), []string{"partitions.unowned : 0", "queue.length queue=r: 5"}); diff != "" {
			t.Errorf("after a look that succeeds again (-recorded +want):\n%s", diff)
		}
		state.Queues = []QueueState{{Queue: "s"}}
		time.Sleep(LookEvery)
		if diff := cmp.Diff(gauges(), []string{"partitions.unowned : 0", "queue.length queue=s: 0"}); diff != "" {
			t.Errorf("after the worker has released a queue (-recorded +want):\n%s", diff)
		}
	})
}

func TestHub_NilDoesNothing(t *testing.T) {
	h, err := NewHub(nil)
	if h != nil || err != nil {
		t.Fatalf("NewHub(nil) is %v, %v", h, err)
	}
	n := testing.AllocsPerRun(100, func() {
		h.RecordOwnership("q", Lost)
		h.AddOwned("q", -1)
		h.RecordReceived("q", 0)
		h.RecordLookup(true)
		h.RecordHeldBack("q", Early)
		h.RecordPoison("q")
		h.RecordOperation("queue", "PutMessage", OK, 0, 2)
	})
	if n != 0 {
		t.Errorf("a nil Hub allocates %v times", n)
	}
}
