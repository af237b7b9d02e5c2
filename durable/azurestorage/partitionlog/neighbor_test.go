package partitionlog_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// live runs a worker for a while and then kills its process.
func (s *simulated) live(name string, lasts time.Duration) {
	s.Helper()
	h, w := s.open(name)
	ctx, cancel := context.WithCancel(s.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = h.Run(ctx) // a dead process cannot stop cleanly
	}()
	time.Sleep(lasts)
	w.Kill()
	cancel()
	<-ended
	_ = h.Close() // a dead process releases nothing
}

// A worker keeps its partitions and its pace beside a worker that crashes in a loop. A worker that
// stays alive gets its share.
func TestHub_KeepsItsPartitionsBesideANeighborThatCrashesInALoop(t *testing.T) {
	for _, lasts := range []time.Duration{800 * time.Millisecond, 7 * time.Second} {
		t.Run(fmt.Sprint("every ", lasts), func(t *testing.T) {
			inBubble(t, func(s *simulated) {
				healthy, _ := s.open("z") // the last ID, so its quota would be the smaller one
				stop := s.work(healthy)
				defer stop()
				c := durable.NewClient(healthy, greetings)
				s.greet(c, 16)
				time.Sleep(30 * time.Second)
				for life, began := 0, time.Now(); time.Since(began) < time.Minute; life++ {
					s.live(fmt.Sprint("a", life), lasts)
					load, err := healthy.Load(s.Context())
					if err != nil {
						s.Fatal(err)
					}
					for n, owner := range load.Owners {
						if owner != "z" {
							s.Fatalf("after %d lives, partition %d has owner %q; want z", life+1, n, owner)
						}
					}
					before := time.Now()
					s.greet(c, 4)
					if took := time.Since(before); took > time.Second {
						s.Errorf("after %d lives, 4 sequences took %v", life+1, took)
					}
				}
				b, _ := s.open("b")
				stopOther := s.work(b)
				time.Sleep(40 * time.Second)
				if load, err := b.Load(s.Context()); err != nil || load.Workers != 2 {
					s.Errorf("the load is %+v, %v; want 2 workers with partitions", load, err)
				}
				stopOther()
			})
		})
	}
}
