package dispatch_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// BenchmarkWaitingInstance reports the memory that a worker without extended sessions holds for
// a waiting instance, which is the memory that its stop frees. The memory of the hub is not
// included.
func BenchmarkWaitingInstance(b *testing.B) {
	const n = 10_000
	waits := one(func(x *replay.Execution, _ *string) (*string, error) {
		waitEvent(x, "go")
		return nil, nil
	})
	for b.Loop() {
		hub := newBench(b)
		stop := hub.work(waits, quiet)
		for i := range n {
			hub.start(fmt.Sprint(i), "O", nil)
		}
		for hub.Pending() > 0 {
			time.Sleep(time.Millisecond)
		}
		with := heapInUse()
		if err := stop(); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(with-heapInUse())/n, "heapB/instance")
		runtime.KeepAlive(hub)
	}
}

// heapInUse returns the number of reachable bytes.
func heapInUse() int64 {
	var m runtime.MemStats
	for range 2 { // the second collects memory that finalizers released
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
