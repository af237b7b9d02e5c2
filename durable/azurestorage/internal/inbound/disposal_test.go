package inbound

import (
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/inflight"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/boundary"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// An event that is older than half of its visibility timeout may have been delivered by another worker.
func TestDisposer_ComparesAnOldEventWithTheHistory(t *testing.T) {
	t.Parallel()
	raised := &history.EventRaised{Header: history.Header{EventID: history.NoEventID, Timestamp: history.TruncateToTicks(time.Now())}, Name: "go"}
	stored := &instances.Instance{History: instances.History{ExecutionID: "e", Known: instances.NewKnownEvents()}}
	stored.Known.Add(&history.ExecutionStarted{})
	stored.Known.Add(raised)
	disposer := &Disposer{Superseded: func(history.OrchestrationInstance) bool { return false }}
	for age, want := range map[time.Duration]int{10 * time.Second: 1, 20 * time.Second: 0} {
		d := &inflight.Delivery{Env: &wire.Envelope{Message: &provider.TaskMessage{Event: raised}}, VisibilityTimeout: 30 * time.Second, Age: age}
		if out := disposer.divide("i", stored, nil, []*inflight.Delivery{d}); len(out.deliver) != want {
			t.Errorf("an event of age %v is delivered %d times, want %d", age, len(out.deliver), want)
		}
	}
}

func TestBoundaries_OfHeldStarts(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	scheduled := &provider.InstanceState{Status: history.Pending, ScheduledAt: at.Add(10 * time.Second)}
	boundary.Check(t, "a held start reappears one second after its time", func(offset int) time.Duration {
		return startDelay(scheduled, 5, at.Add(time.Duration(offset)*time.Second))
	}, 12*time.Second, 11*time.Second, 10*time.Second)
}

func TestStartDelay_GrowsForAMissingStart(t *testing.T) {
	t.Parallel()
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	state := &provider.InstanceState{LastUpdatedAt: created}
	times := 0
	for now := created; now.Before(created.Add(24 * time.Hour)); times++ {
		now = now.Add(startDelay(state, times+1, now))
	}
	if times > 200 {
		t.Errorf("the message is delivered %d times in a day, want at most 200", times)
	}
}

func TestStartDelay_EndsSoonAfterTheStart(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	tests := []struct {
		name         string
		due          time.Duration // of the start, from now
		dequeueCount int
		want         time.Duration
	}{
		{"due now, first receive", 0, 1, 2 * time.Second},
		{"due now, 20th receive", 0, 20, maxStartDelay},
		{"due in a minute, first receive", time.Minute, 1, 2 * time.Second},
		{"due in a minute, 20th receive", time.Minute, 20, 61 * time.Second},
		{"due in less than a second", 300 * time.Millisecond, 20, time.Second},
		{"due in weeks", 21 * 24 * time.Hour, 20, inflight.MaxAbandonDelay},
		{"an hour late, first receive", -time.Hour, 1, 2 * time.Second},
		{"a little late", -20 * time.Second, 20, maxStartDelay},
		{"minutes late", -4 * time.Minute, 20, time.Minute},
		{"hours late", -time.Hour, 20, inflight.MaxAbandonDelay},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			state := &provider.InstanceState{LastUpdatedAt: now.Add(min(tt.due, 0)), ScheduledAt: now.Add(tt.due)}
			if got := startDelay(state, tt.dequeueCount, now); got != tt.want {
				t.Errorf("startDelay = %v, want %v", got, tt.want)
			}
		})
	}
}
