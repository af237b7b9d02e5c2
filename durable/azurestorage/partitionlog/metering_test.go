package partitionlog_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering/meteringtest"
	sdk "go.opentelemetry.io/otel/sdk/metric"
)

func TestMetrics_ReportThePartitionsOfAWorker(t *testing.T) {
	inBubble(t, func(s *simulated) {
		reader := sdk.NewManualReader()
		h, w := s.openWith("a", partitionlog.Config{MeterProvider: sdk.NewMeterProvider(sdk.WithReader(reader))})
		expect := func(when string, owned int, changes string) {
			s.Helper()
			sum := 0.0
			for name, n := range meteringtest.Recorded(s.T, reader, "durabletask.partitions.owned", "durabletask.queue") {
				if sum += n; n < 0 || n > 1 {
					s.Errorf("%s: %s is owned %v times", when, name, n)
				}
			}
			got := fmt.Sprint(meteringtest.Recorded(s.T, reader, "durabletask.partitions.changes", "durabletask.partition.change"))
			if int(sum) != owned || got != changes {
				s.Errorf("%s: %v partitions are owned after %s, want %d after %s", when, sum, got, owned, changes)
			}
		}
		stop := s.work(h)
		s.greet(durable.NewClient(h, greetings), 16)
		expect("one worker", 4, "map[acquired:4]")
		lengths := meteringtest.Recorded(s.T, reader, "durabletask.queue.length", "durabletask.queue")
		for n := range 4 {
			if _, ok := lengths[fmt.Sprintf("sim-log/p%02d", n)]; !ok {
				s.Errorf("queue lengths were reported for %v; want partition %d, too", lengths, n)
			}
		}
		if _, ok := lengths["sim-log/activities"]; !ok || len(lengths) != 5 {
			s.Errorf("queue lengths were reported for %v; want four partitions and the activities", lengths)
		}

		other, _ := s.open("b")
		stopOther := s.work(other)
		time.Sleep(time.Minute)
		expect("two workers", 2, "map[acquired:4 released:2]")
		w.Freeze(partitionlog.DefaultLeaseInterval + 10*time.Second)
		time.Sleep(partitionlog.DefaultLeaseInterval + 5*time.Second)
		expect("cut off for longer than its leases", 0, "map[acquired:4 lost:2 released:2]")
		stopOther()
		time.Sleep(time.Minute)
		expect("alone again", 4, "map[acquired:8 lost:2 released:2]")
		stop()
		expect("at the end", 0, "map[acquired:8 lost:2 released:6]")
		if n := len(meteringtest.Recorded(s.T, reader, "durabletask.queue.length", "durabletask.queue")); n > 0 {
			s.Errorf("queue lengths of %d queues were reported after the end; want none", n)
		}
	})
}
