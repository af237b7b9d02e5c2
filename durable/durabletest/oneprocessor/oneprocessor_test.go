package oneprocessor_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/durablefunctions-go/durablefunctions/durable/durabletest/oneprocessor"
)

// With the race detector of Go 1.26.8 and GOMAXPROCS=2, this test crashes within seconds. If it passes 100
// times, Go has fixed the race detector, and this package is not needed any more.
func TestOneProcessor_ABubbleMayReceiveFromExpiredTimers(t *testing.T) {
	for range 5 {
		synctest.Test(t, func(*testing.T) {
			var workers sync.WaitGroup
			for range 4 {
				workers.Go(func() {
					timers := make([]*time.Timer, 20)
					for range 50 {
						for i := range timers {
							timers[i] = time.NewTimer(time.Second)
							time.AfterFunc(time.Second, func() {})
						}
						time.Sleep(time.Second)
						for _, timer := range timers {
							<-timer.C
						}
					}
				})
			}
			workers.Wait()
		})
	}
}
