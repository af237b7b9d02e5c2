package embedded

import (
	"strings"
	"testing"
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
