package simulated_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
)

// A service with a low rate limit rejects fewer requests than it allows, and every kind of work
// makes progress.
func TestRateLimit_RejectsFewRequestsAndBlocksNoKindOfWork(t *testing.T) {
	cases := 0
	for _, service := range []string{azsim.QueueService, azsim.TableService} {
		for _, perSecond := range []float64{3, 5} {
			for _, after := range []time.Duration{0, 2 * time.Second} {
				if cases++; cases%usual().sample != 0 {
					continue
				}
				t.Run(fmt.Sprintf("%v requests per second, service %s, Retry-After %v", perSecond, service, after), func(t *testing.T) {
					limit := &azsim.RateLimit{Service: service, PerSecond: perSecond}
					var limited atomic.Bool
					cfg := azsim.Config{Seed: 5, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond, RetryAfter: after, Decide: func(r azsim.Request) azsim.Fault {
						if !limited.Load() || r.Target == "SimPartitions" {
							return azsim.None
						}
						return limit.Decide(r)
					}}
					open := runEveryShape(t, cfg, func() { limited.Store(true) }, time.Hour)
					if len(open) > 0 {
						t.Errorf("not completed: %q", open)
					}
					allowed, refused := limit.Counts()
					t.Logf("%d requests allowed, %d refused", allowed, refused)
					if refused >= allowed/2 {
						t.Errorf("%d requests rejected and %d allowed; want less than half as many", refused, allowed)
					}
				})
			}
		}
	}
}
