package store

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// DurableTask.AzureStorage/BackoffPollingHelper.cs, GetNextDelay: with the
// random factor in its middle the pauses are the recorded ones of an idle
// queue.
func TestPollBackoff_PausesAsBackoffPollingHelperDoes(t *testing.T) {
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

// BackoffPollingHelper.cs, Reset: a signal or a message begins anew with the
// minimum, not with zero.
func TestPollBackoff_BeginsWithTheMinimumAfterReset(t *testing.T) {
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

func TestPollBackoff_NeverPausesForLongerThanItsMaximum(t *testing.T) {
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

// What one look comes to decides how the next pauses go on: looks that find nothing (e),
// something (m), or nothing before a nudge comes (n), and looks that fail (x).
func TestPollBackoff_BeginsAnewAfterWhatSucceeds(t *testing.T) {
	const most = 30 * time.Second
	idle, outage := strings.Repeat("e", 30), strings.Repeat("x", 30)
	for looks, want := range map[string][2]time.Duration{ // the last pause: at least, at most
		idle:                {most, most},
		outage:              {MaxOutageDelay / 2, MaxOutageDelay},
		idle + "m":          {0, 0},
		idle + "n":          {0, 0},
		idle + "me":         {MinPollingInterval, MinPollingInterval},
		idle + "ne":         {MinPollingInterval, MinPollingInterval},
		idle + "mxe":        {MinPollingInterval, MinPollingInterval},
		idle + "xe":         {most, most}, // that it failed says nothing of the queue
		idle + outage + "e": {most, most},
		idle + "x":          {FirstOutageDelay / 2, FirstOutageDelay},
		outage + "ex":       {FirstOutageDelay / 2, FirstOutageDelay},
		outage + "mx":       {FirstOutageDelay / 2, FirstOutageDelay},
		outage + "nx":       {FirstOutageDelay / 2, FirstOutageDelay},
		outage + "exx":      {FirstOutageDelay, 2 * FirstOutageDelay},
		outage + "m":        {0, 0},
		outage + "e":        {0, 0}, // the first of all that finds nothing
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
					wake.Give()
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
