package store

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// With the middle value of the random factor, the pauses equal the recorded pauses of an idle queue
// (DurableTask.AzureStorage/BackoffPollingHelper.cs, GetNextDelay).
func TestPollBackoff_PausesAsBackoffPollingHelper(t *testing.T) {
	b := PollBackoff{Max: 3 * time.Second}
	var got []int64
	for range 11 {
		got = append(got, b.next(0.5).Milliseconds())
	}
	want := []int64{0, 50, 100, 150, 250, 450, 850, 1650, 3000, 3000, 3000}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pauses in milliseconds (-want +got):\n%s", diff)
	}
}

func TestPollBackoff_StaysWithinTheRandomFactor(t *testing.T) {
	for _, random := range []float64{0, 0.25, 0.999999} {
		b := PollBackoff{Max: time.Hour}
		b.next(random)
		b.next(random)
		for k := range 8 {
			base := float64(MinPollingInterval) * float64(int(1)<<k)
			low, high := MinPollingInterval+time.Duration(0.8*base), MinPollingInterval+time.Duration(1.2*base)
			if got := b.next(random); got < low || got > high {
				t.Errorf("random %v: pause %d is %v, want %v to %v", random, k, got, low, high)
			}
		}
	}
}

// A signal or a message restarts the pauses at the minimum, not at zero (BackoffPollingHelper.cs, Reset).
func TestPollBackoff_RestartsAtTheMinimumAfterReset(t *testing.T) {
	b := PollBackoff{Max: 30 * time.Second}
	for range 8 {
		b.next(0.5)
	}
	b.reset()
	got := []time.Duration{b.next(0.5), b.next(0.5), b.next(0.5)}
	want := []time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 150 * time.Millisecond}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pauses after reset (-want +got):\n%s", diff)
	}
}

func TestPollBackoff_NeverExceedsItsMaximum(t *testing.T) {
	for _, most := range []time.Duration{20 * time.Millisecond, 50 * time.Millisecond, 60 * time.Millisecond, time.Second} {
		b := PollBackoff{Max: most}
		for range 10 {
			if got := b.next(0.999); got > most {
				t.Fatalf("pause %v is longer than %v", got, most)
			}
		}
		b.reset()
		if got, want := b.next(0), min(MinPollingInterval, most); got != want {
			t.Errorf("pause %v, want %v", got, want)
		}
	}
}

// The result of each poll determines the next pause. A poll finds nothing (e) or a message (m), finds
// nothing and is followed by a nudge (n), or fails (x).
func TestPollBackoff_RestartsAfterSuccess(t *testing.T) {
	const most = 30 * time.Second
	idle, outage := strings.Repeat("e", 30), strings.Repeat("x", 30)
	for looks, want := range map[string][2]time.Duration{ // minimum and maximum of the last pause
		idle:                {most, most},
		outage:              {MaxOutageDelay / 2, MaxOutageDelay},
		idle + "m":          {0, 0},
		idle + "n":          {0, 0},
		idle + "me":         {MinPollingInterval, MinPollingInterval},
		idle + "ne":         {MinPollingInterval, MinPollingInterval},
		idle + "mxe":        {MinPollingInterval, MinPollingInterval},
		idle + "xe":         {most, most}, // a failed poll does not change the backoff
		idle + outage + "e": {most, most},
		idle + "x":          {FirstOutageDelay / 2, FirstOutageDelay},
		outage + "ex":       {FirstOutageDelay / 2, FirstOutageDelay},
		outage + "mx":       {FirstOutageDelay / 2, FirstOutageDelay},
		outage + "nx":       {FirstOutageDelay / 2, FirstOutageDelay},
		outage + "exx":      {FirstOutageDelay, 2 * FirstOutageDelay},
		outage + "m":        {0, 0},
		outage + "e":        {0, 0}, // the first poll that finds nothing
	} {
		synctest.Test(t, func(t *testing.T) {
			b, wake := PollBackoff{Max: most}, NewNudge()
			var last time.Duration
			for _, look := range looks {
				began, found, err := time.Now(), 0, error(nil)
				switch look {
				case 'm':
					found = 1
				case 'n':
					wake.Send()
				case 'x':
					err = errors.New("no answer")
				}
				b.Wait(t.Context(), wake, "queue", found, err)
				last = time.Since(began)
			}
			if last < want[0] || last > want[1] {
				t.Errorf("the pause after %q is %v, want %v to %v", looks, last, want[0], want[1])
			}
		})
	}
}
