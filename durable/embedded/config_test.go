package embedded

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestConfig_ZeroValueHasItsDefaults(t *testing.T) {
	t.Parallel()
	c := Config{}.WithDefaults()
	if err := (Config{}).Validate(); err != nil {
		t.Errorf("Validate: %v", err)
	}
	if c.Relaxed || c.DrainTimeout != DefaultDrainTimeout || c.AbandonDelay != DefaultAbandonDelay ||
		c.MaxAbandonDelay != DefaultMaxAbandonDelay || c.LockTimeout != DefaultLockTimeout || c.PageSize != DefaultPageSize || c.Logger == nil {
		t.Errorf("defaults are %+v", c)
	}
}

func TestConfig_ValidateNamesFieldValueAndRange(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		c    Config
		want string
	}{
		{Config{LockTimeout: -1}, "LockTimeout is -1ns; want 1ms to 1h0m0s"},
		{Config{DrainTimeout: -time.Second}, "DrainTimeout is -1s; want 0s to 1h0m0s"},
		{Config{AbandonDelay: 48 * time.Hour}, "AbandonDelay is 48h0m0s; want 1ms to 24h0m0s"},
		{Config{AbandonDelay: time.Minute, MaxAbandonDelay: time.Second}, "MaxAbandonDelay is 1s; want 1m0s to 24h0m0s"},
		{Config{PageSize: -1}, "PageSize is -1; want 1 to 10000"},
	} {
		if err := tt.c.Validate(); err == nil || err.Error() != tt.want {
			t.Errorf("got %v, want %s", err, tt.want)
		}
		if _, err := Open(t.TempDir()+"/hub.db", tt.c); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Open: got %v, want %s", err, tt.want)
		}
	}
}

func TestHub_AbandonDelayDoublesUpToItsLimit(t *testing.T) {
	t.Parallel()
	c := Config{AbandonDelay: time.Second, MaxAbandonDelay: 5 * time.Second}
	for attempt, want := range map[int]time.Duration{1: 1, 2: 2, 3: 4, 4: 5, 1000000: 5} {
		if got := c.abandonDelay(attempt); got != want*time.Second {
			t.Errorf("delay of attempt %d is %v, want %v", attempt, got, want*time.Second)
		}
	}
}

// The delay counts the sessions since the last that got on: what has failed often in its
// life waits no longer than what fails for the first time, after a checkpoint or when
// another instance begins under the ID.
func TestHub_AbandonDelayBeginsAnewOnceTheInstanceGetsOn(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/hub.db"
	synctest.Test(t, func(t *testing.T) {
		r := openRig(t, path)
		r.start("a")
		item := r.next()
		for _, getsOn := range []func(){
			func() {},
			func() { r.send("a", "E"); r.finish(item); item = r.next() },
			func() {
				r.must(item.Session.Abandon(t.Context(), errors.New("it cannot be done")))
				r.must(item.Session.Release(t.Context()))
				r.start("a") // in its place
				item = r.next()
			},
		} {
			getsOn()
			for want := time.Millisecond; want < 10*time.Millisecond; want *= 2 {
				r.must(item.Session.Abandon(t.Context(), errors.New("it cannot be done")))
				r.must(item.Session.Release(t.Context()))
				began := time.Now()
				item = r.next()
				if took := time.Since(began); took != want {
					t.Errorf("work that was abandoned is handed out again after %v, want %v", took, want)
				}
			}
		}
	})
}
