package azurestorage

import (
	"testing"
	"time"
)

func TestStartDelay_BringsWhatWaitsForAnInstanceWithItsStart(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	tests := []struct {
		name         string
		scheduled    time.Time
		dequeueCount int
		want         time.Duration
	}{
		{"at once, the first time", time.Time{}, 1, 2 * time.Second},
		{"at once, after many times", time.Time{}, 20, startPatience},
		{"soon, the first time", now.Add(time.Minute), 1, 2 * time.Second},
		{"soon, after many times", now.Add(time.Minute), 20, 61 * time.Second},
		{"in part of a second", now.Add(300 * time.Millisecond), 20, time.Second},
		{"weeks away", now.Add(21 * 24 * time.Hour), 20, maxAbandonDelay},
		{"due and not started", now.Add(-time.Hour), 20, startPatience},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := startDelay(tt.scheduled, tt.dequeueCount, now); got != tt.want {
				t.Errorf("startDelay = %v, want %v", got, tt.want)
			}
		})
	}
}
