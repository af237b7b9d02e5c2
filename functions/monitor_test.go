package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestWatch_DefaultsFillMissingValues(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, test := range map[string]struct{ in, want Watch }{
		"nothing given":  {Watch{}, Watch{EverySeconds: 30, ForSeconds: 21600, Until: now.Add(6 * time.Hour)}},
		"all given":      {Watch{EverySeconds: 0.5, ForSeconds: 60}, Watch{EverySeconds: 0.5, ForSeconds: 60, Until: now.Add(time.Minute)}},
		"a later round":  {Watch{EverySeconds: 1, ForSeconds: 60, Looks: 3, Until: now.Add(5 * time.Second)}, Watch{EverySeconds: 1, ForSeconds: 60, Looks: 3, Until: now.Add(5 * time.Second)}},
		"negative times": {Watch{EverySeconds: -1, ForSeconds: -1}, Watch{EverySeconds: 30, ForSeconds: 21600, Until: now.Add(6 * time.Hour)}},
	} {
		if diff := cmp.Diff(test.want, test.in.withDefaults(now)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestIsThere_ReportsWhetherAFileExists(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]bool{dir: true, filepath.Join(dir, "no"): false} {
		if got, err := IsThere(t.Context(), path); got != want || err != nil {
			t.Errorf("IsThere(%s) = %v, %v; want %v", path, got, err, want)
		}
	}
}
