package reclaim

import (
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/durablefunctions-go/durablefunctions/durable/durabletest/oneprocessor"
)

// forced returns the number of collections that the program forced.
func forced() uint32 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.NumForcedGC
}

// setting returns the current GOGC value.
func setting() int {
	now := debug.SetGCPercent(100)
	debug.SetGCPercent(now)
	return now
}

func TestPacer_CollectsEarlyUntilShortlyAfterTheLastStep(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		usual := setting()
		var p, other Pacer
		p.Step(Large - 1)
		if now := setting(); now != usual {
			t.Errorf("after a small payload the setting is %d, want %d", now, usual)
		}
		p.Step(Large)
		other.Step(Large)
		p.Step(Large)
		if now := setting(); now != earlyPercent {
			t.Errorf("after a large payload the setting is %d, want %d", now, earlyPercent)
		}
		before := forced()
		time.Sleep(freeAfter + time.Second)
		synctest.Wait()
		if freed := forced() > before; !freed || setting() != earlyPercent {
			t.Errorf("after the first time memory is returned: %t, setting %d; want true, %d", freed, setting(), earlyPercent)
		}
		before = forced()
		time.Sleep(freeAfter)
		synctest.Wait()
		if freed := forced() > before; !freed || setting() != usual {
			t.Errorf("after the last step memory is returned: %t, setting %d; want true, %d", freed, setting(), usual)
		}
	})
}

func TestPacer_KeepsTheUsersSetting(t *testing.T) {
	usual := setting()
	defer debug.SetGCPercent(usual)
	for _, own := range []int{-1, 10} {
		debug.SetGCPercent(own)
		var l lowered
		l.lower()
		if now := setting(); now != own {
			t.Errorf("the setting becomes %d, want %d", now, own)
		}
		l.restore()
		if now := setting(); now != own {
			t.Errorf("the setting becomes %d, want %d", now, own)
		}
	}
	debug.SetGCPercent(usual)
	var l lowered
	l.lower()
	debug.SetGCPercent(77)
	l.restore()
	if now := setting(); now != 77 {
		t.Errorf("the setting becomes %d, want 77", now)
	}
}
