package reclaim

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

func TestIsDue_LimitsTheShareOfCollections(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		garbage, live uint64 // megabytes
		want          bool
	}{
		{0, 0, false}, {63, 0, false}, {64, 0, true}, {64, 256, true}, {64, 260, false}, {999, 4000, false}, {1000, 4000, true},
	} {
		if got := isDue((tt.live+tt.garbage)<<20, tt.live<<20); got != tt.want {
			t.Errorf("%d MB of garbage beside %d MB: %t, want %t", tt.garbage, tt.live, got, tt.want)
		}
	}
}

// forced returns the number of collections that the program has started.
func forced() uint32 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.NumForcedGC
}

var sink []byte

func TestPacer_CollectsEarlyAndReturnsMemoryAfterTheLastStep(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		var p Pacer
		p.Step(Large - 1)
		if p.armed {
			t.Error("a small payload counts")
		}
		runtime.GC()
		before := forced()
		p.Step(Large)
		if forced() != before {
			t.Error("a collection without garbage")
		}
		for range 3 { // the last is live
			sink = make([]byte, worthwhile+Large)
		}
		sink = nil
		p.Step(Large)
		if forced() == before {
			t.Error("much garbage is not collected")
		}
		before = forced()
		time.Sleep(freeAfter + time.Second)
		synctest.Wait()
		if forced() == before || !p.armed {
			t.Error("memory is not returned, or not again after the second step")
		}
		time.Sleep(freeAfter)
		synctest.Wait()
		if p.armed {
			t.Error("memory is returned again without work")
		}
	})
}
