package dispatch_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

func TestFits_LimitsAllItemsExceptTheFirstAndSmallOnes(t *testing.T) {
	t.Parallel()
	const kb, mb = 1 << 10, 1 << 20
	for _, tt := range []struct {
		limit, taken, size int
		want               bool
	}{
		{mb, 0, 5 * mb, true}, // one always runs
		{mb, kb, 5 * mb, false},
		{mb, 600 * kb, 400 * kb, true},
		{mb, 600 * kb, 424 * kb, true},
		{mb, 600 * kb, 424*kb + 1, false},
		{mb, 5 * mb, 256 * kb, true}, // a small item does not count
		{mb, 5 * mb, 256*kb + 1, false},
	} {
		if got := dispatch.Fits(tt.limit, tt.taken, tt.size); got != tt.want {
			t.Errorf("limit %d, taken %d: %d fits: %t, want %t", tt.limit, tt.taken, tt.size, got, tt.want)
		}
	}
}

// A gauge counts functions that run at the same time.
type gauge struct {
	mu      sync.Mutex
	now     int
	highest int
}

func (g *gauge) hold(d time.Duration) {
	g.mu.Lock()
	g.now++
	g.highest = max(g.highest, g.now)
	g.mu.Unlock()
	time.Sleep(d)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now--
}

func large(kilobytes int) string { return strings.Repeat("x", kilobytes<<10) }

func maxPayload(megabytes int64) func(*dispatch.Config) {
	return func(c *dispatch.Config) { c.MaxPayload = megabytes << 20 }
}

func TestAdmission_LimitsTheActivitiesThatRunAtOnce(t *testing.T) {
	for _, tt := range []struct{ kilobytes, want int }{{1, 5}, {400, 2}, {700, 1}, {3000, 1}} {
		t.Run(fmt.Sprintf("%d KB", tt.kilobytes), func(t *testing.T) {
			bubble(t, func(b *bench) {
				var g gauge
				fns := functions{
					activities: map[string]activity{"A": func(context.Context, *string) (*string, error) {
						g.hold(time.Second)
						return nil, nil
					}},
					orchestrators: map[string]replay.Code{"O": func(x *replay.Execution, _ *string) (*string, error) {
						return callActivity(x, "A", large(tt.kilobytes))
					}},
				}
				b.work(fns, maxPayload(1))
				for n := range 5 {
					b.start(fmt.Sprint("i", n), "O", nil)
				}
				for n := range 5 {
					b.wantOutput(fmt.Sprint("i", n), history.Completed, "<nil>")
				}
				if g.highest != tt.want {
					t.Errorf("%d activities ran at once, want %d", g.highest, tt.want)
				}
			})
		})
	}
}

func TestAdmission_LimitsTheInstancesThatRunAtOnce(t *testing.T) {
	bubble(t, func(b *bench) {
		var g gauge
		b.work(one(func(*replay.Execution, *string) (*string, error) {
			g.hold(time.Second)
			return nil, nil
		}), maxPayload(1))
		for n := range 5 {
			b.start(fmt.Sprint("i", n), "O", large(400))
		}
		for n := range 5 {
			b.wantOutput(fmt.Sprint("i", n), history.Completed, "<nil>")
		}
		if g.highest != 2 {
			t.Errorf("%d instances ran at once, want 2", g.highest)
		}
	})
}

// The events of ten idle instances arrive at once. Those that do not fit wait.
func TestAdmission_LimitsIdleInstancesThatContinue(t *testing.T) {
	bubble(t, func(b *bench) {
		var g gauge
		b.work(one(func(x *replay.Execution, _ *string) (*string, error) {
			waitEvent(x, "go")
			if !x.IsReplaying() {
				g.hold(time.Second)
			}
			return nil, nil
		}), maxPayload(1), extendedSessions)
		for n := range 10 {
			b.start(fmt.Sprint("i", n), "O", nil)
		}
		time.Sleep(time.Second)
		for n := range 10 {
			b.send(fmt.Sprint("i", n), &history.EventRaised{Name: "go", Input: encode(large(400))})
		}
		for n := range 10 {
			b.wantOutput(fmt.Sprint("i", n), history.Completed, "<nil>")
		}
		if g.highest != 2 {
			t.Errorf("%d instances continued at once, want 2", g.highest)
		}
	})
}

func TestAdmission_WaitingWorkIsAbandonedWhenTheWorkerStops(t *testing.T) {
	bubble(t, func(b *bench) {
		fns := functions{
			activities: map[string]activity{"A": func(context.Context, *string) (*string, error) {
				time.Sleep(3 * time.Second)
				return nil, nil
			}},
			orchestrators: map[string]replay.Code{"O": func(x *replay.Execution, _ *string) (*string, error) {
				return callActivity(x, "A", large(700))
			}},
		}
		stop := b.work(fns, maxPayload(1))
		b.start("i", "O", nil)
		b.start("j", "O", nil)
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		b.work(fns)
		b.wantOutput("i", history.Completed, "<nil>")
		b.wantOutput("j", history.Completed, "<nil>")
	})
}
