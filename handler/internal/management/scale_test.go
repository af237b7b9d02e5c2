package management

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
)

// Cases from DurableTaskTargetScalerTests.cs for
// WebJobs.Extensions.DurableTask/Listener/DurableTaskTargetScaler.cs, GetScaleResultAsync.
func TestTargetWorkers_MatchesTheTargetScalerOfDotNet(t *testing.T) {
	for _, c := range []struct {
		maxActivities, maxOrchestrators, items int
		control                                []int
		want                                   int
	}{
		{1, 1, 10, []int{0, 0, 0, 0}, 10},
		{1, 1, 0, []int{0, 0, 0, 0}, 0},
		{1, 1, 0, []int{2, 2, 2, 2}, 4},
		{1, 10, 10, []int{2, 2, 2, 2}, 10},
		{10, 1, 0, []int{2, 2, 2, 2}, 4},
		{10, 10, 0, []int{20, 0, 0, 0}, 1},
		{10, 10, 101, []int{1, 1, 0, 0}, 11},
	} {
		l := &provider.Load{WorkItems: provider.QueueLoad{Length: c.items}}
		for _, n := range c.control {
			l.ControlQueues = append(l.ControlQueues, provider.QueueLoad{Length: n})
		}
		if got := targetWorkers(l, c.maxActivities, c.maxOrchestrators); got != c.want {
			t.Errorf("%d activities and %v messages by %d and %d: %d workers, want %d", c.items, c.control, c.maxActivities, c.maxOrchestrators, got, c.want)
		}
	}
}

// samplesOf returns samples of a hub. The arguments are the latencies of its work items and of its
// control queues in milliseconds, oldest first.
func samplesOf(workers int, items []int, control ...[]int) []*provider.Load {
	var looks []*provider.Load
	for i := range items {
		l := &provider.Load{Workers: workers, WorkItems: provider.QueueLoad{Latency: time.Duration(items[i]) * time.Millisecond}}
		for _, c := range control {
			l.ControlQueues = append(l.ControlQueues, provider.QueueLoad{Latency: time.Duration(c[i]) * time.Millisecond})
		}
		looks = append(looks, l)
	}
	return looks
}

// See DurableTask.AzureStorage/Monitoring/DisconnectedPerformanceMonitor.cs, MakeScaleRecommendation.
func TestRecommend_MatchesThePerformanceMonitorOfDotNet(t *testing.T) {
	none, some := []int{0, 0, 0, 0, 0}, []int{10, 10, 10, 10, 10}
	for _, c := range []struct {
		name  string
		looks []*provider.Load
		want  recommendation
	}{
		{"nothing and nobody", samplesOf(0, none, none), recommendation{scaleNone, false, "Task hub is idle"}},
		{"the first worker", samplesOf(0, []int{1}, []int{0}), recommendation{scaleAdd, true, "First worker"}},
		{"too few looks", samplesOf(1, []int{5000, 5000}, []int{0, 0}), recommendation{scaleNone, true, "Not enough samples"}},
		{"idle", samplesOf(1, none, none), recommendation{scaleRemove, false, "Task hub is idle"}},
		{"slow work items", samplesOf(1, []int{10, 10, 10, 900, 1000}, none), recommendation{scaleAdd, true, "Work-item queue latency: 1000 > 1000"}},
		{"slow after idleness", samplesOf(1, []int{10, 10, 10, 0, 1000}, some), recommendation{scaleNone, true, "Queue latencies are healthy"}},
		{"very slow after idleness", samplesOf(1, []int{10, 10, 10, 0, 30000}, none), recommendation{scaleAdd, true, "Work-item queue latency: 30000 > 1000"}},
		{"more workers than partitions", samplesOf(2, none, some), recommendation{scaleRemove, true, "Work-items idle, #workers > partitions (2 > 1)"}},
		{"slow control queues", samplesOf(1, some, []int{10, 10, 10, 10, 1500}, []int{10, 10, 10, 10, 1200}), recommendation{scaleAdd, true, "High control queue latency: 1500 > 1000"}},
		{"as many workers as slow control queues", samplesOf(2, some, []int{10, 10, 10, 10, 1500}, []int{10, 10, 10, 10, 1200}), recommendation{scaleNone, true, "Queue latencies are healthy"}},
		{"an idle control queue", samplesOf(2, none, some, none), recommendation{scaleRemove, true, "One or more control queues idle"}},
		{"healthy", samplesOf(1, some, some), recommendation{scaleNone, true, "Queue latencies are healthy"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := recommend(c.looks, 30*time.Second); got != c.want {
				t.Errorf("recommends %+v, want %+v", got, c.want)
			}
		})
	}
}

// Steps count like activities. Only the owners of partitions run them.
func TestScale_CountsSteps(t *testing.T) {
	for _, c := range []struct {
		items, steps, partitions, want int
	}{
		{0, 25, 4, 3},
		{0, 25, 2, 2},
		{15, 10, 4, 3},
		{50, 10, 4, 5},
	} {
		l := &provider.Load{WorkItems: provider.QueueLoad{Length: c.items}, Steps: provider.QueueLoad{Length: c.steps}, ControlQueues: make([]provider.QueueLoad, c.partitions)}
		if got := targetWorkers(l, 10, 10); got != c.want {
			t.Errorf("%+v: %d workers", c, got)
		}
	}
	none, some, slow := []int{0, 0, 0, 0, 0}, []int{10, 10, 10, 10, 10}, []int{900, 1000, 1100, 1200, 1300}
	for _, c := range []struct {
		name  string
		looks []*provider.Load
		steps []int
		want  recommendation
	}{
		{"steps that run", samplesOf(1, none, none), none, recommendation{scaleNone, true, "Queue latencies are healthy"}},
		{"slow steps", samplesOf(1, none, none, none), slow, recommendation{scaleAdd, true, "Step latency: 1300 > 1000"}},
		{"slow steps and no free partition", samplesOf(2, none, none, some), slow, recommendation{scaleNone, true, "Queue latencies are healthy"}},
		{"more workers than partitions", samplesOf(3, none, none, some), slow, recommendation{scaleRemove, true, "Work-items idle, #workers > partitions (3 > 2)"}},
	} {
		for i, l := range c.looks {
			l.Steps = provider.QueueLoad{Length: 1, Latency: time.Duration(c.steps[i]) * time.Millisecond}
		}
		if got := recommend(c.looks, 30*time.Second); got != c.want {
			t.Errorf("%s: recommends %+v, want %+v", c.name, got, c.want)
		}
	}
}

// loadSequence is a hub that reports one load after another.
type loadSequence struct {
	all  []*provider.Load
	asks int
	err  error
}

func (l *loadSequence) Load(context.Context) (*provider.Load, error) {
	l.asks++
	if l.err != nil {
		return nil, l.err
	}
	return l.all[min(l.asks, len(l.all))-1], nil
}

func TestLoadMonitor_KeepsTheLastSamples(t *testing.T) {
	busy := samplesOf(1, []int{100, 200, 300, 400, 1100, 1200}, []int{0, 0, 0, 0, 0, 0})
	hub := &loadSequence{all: busy}
	now := time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC)
	m := &loadMonitor{hub: hub, now: func() time.Time { return now }, cfg: func() (int, int, time.Duration) { return 10, 10, 30 * time.Second }}
	for i := range busy {
		for range 2 { // the second request within a second takes no sample
			p, err := m.look(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if want := busy[i].WorkItems.Latency.Seconds(); p.WorkItemQueueLatency != want {
				t.Errorf("sample %d is %v s, want %v s", i, p.WorkItemQueueLatency, want)
			}
			if added := p.ScaleRecommendation.Action == scaleAdd; added != (i >= 4) {
				t.Errorf("look %d recommends %+v", i, p.ScaleRecommendation)
			}
		}
		now = now.Add(sampleInterval)
	}
	if hub.asks != len(busy) || len(m.looks) != loadSamples {
		t.Errorf("asked %d times and remembers %d looks, want %d and %d", hub.asks, len(m.looks), len(busy), loadSamples)
	}
}

func TestLoadMonitor_ReturnsTheReasonIfThereIsNoLoad(t *testing.T) {
	cfg := func() (int, int, time.Duration) { return 1, 1, time.Second }
	if _, err := (&loadMonitor{now: time.Now, cfg: cfg}).look(t.Context()); !errors.Is(err, durable.ErrNotSupported) {
		t.Errorf("a hub that does not report its load: %v", err)
	}
	broken := errors.New("storage is down")
	if _, err := (&loadMonitor{hub: &loadSequence{err: broken}, now: time.Now, cfg: cfg}).look(t.Context()); !errors.Is(err, broken) {
		t.Errorf("a hub that is down: %v", err)
	}
}

func TestWorkersOf_ListsAllKnownWorkers(t *testing.T) {
	t.Parallel()
	got := workersOf(&provider.Load{
		Owners: []string{"b", "", "a", "b"}, Self: "idle", Builds: map[string]string{"a": "app v2", "other": "app v1"},
	})
	want := []WorkerPayload{
		{ID: "a", Build: "app v2", Partitions: []int{2}},
		{ID: "b", Partitions: []int{0, 3}},
		{ID: "idle", IsThisProcess: true, Partitions: []int{}},
		{ID: "other", Build: "app v1", Partitions: []int{}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the workers (-want +got): %s", d)
	}
	if got := workersOf(&provider.Load{Workers: 3}); got != nil {
		t.Errorf("of a hub that knows none there are %v", got)
	}
}

func TestScale_CountsHiddenMessages(t *testing.T) {
	hub := &loadSequence{all: []*provider.Load{{
		ControlQueues: []provider.QueueLoad{{Stored: 2}, {Length: 3, Stored: 3}}, WorkItems: provider.QueueLoad{Stored: 4},
	}}}
	m := &loadMonitor{hub: hub, now: time.Now, cfg: func() (int, int, time.Duration) { return 10, 10, 30 * time.Second }}
	p, err := m.look(t.Context())
	if err != nil || p.StoredMessageCount != 9 {
		t.Errorf("%+v, %v; want 9 messages", p, err)
	}
}
