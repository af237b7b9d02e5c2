package partitionlog_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
)

// A caller waits for the end of an instance while the instance's partition moves to another worker.
// The call returns when the instance ends there. The hub stays healthy meanwhile.
func TestAwaitEnd_SurvivesTheHandOverOfAPartition(t *testing.T) {
	inBubble(t, func(s *simulated) {
		a, _ := s.open("a")
		stop := s.work(a)
		c := durable.NewClient(a, greetings)
		started := time.Now()
		var all sync.WaitGroup
		for n := range 16 {
			id, err := c.StartByName(s.Context(), "Nobody", nil, durable.InstanceID(fmt.Sprint("i", n)))
			if err != nil {
				s.Fatal(err)
			}
			all.Go(func() {
				if err := a.AwaitEnd(s.Context(), string(id)); err != nil || time.Since(started) < 5*time.Minute {
					s.Errorf("AwaitEnd of %s returned after %v: %v", id, time.Since(started), err)
				}
			})
		}
		time.Sleep(time.Minute)
		b, _ := s.open("b")
		stopOther := s.work(b) // it soon owns half of the partitions
		pause := time.Duration(testshare.Amount(1, 20)) * time.Millisecond
		for began := time.Now(); time.Since(began) < 5*time.Minute; time.Sleep(pause) {
			if time.Since(began) < 3*time.Second { // keeps writing during the handover
				all.Go(func() {
					if err := durable.Event[int]("E").Raise(s.Context(), c, durable.InstanceID(fmt.Sprint("i", time.Since(began).Milliseconds()%16)), 0); err != nil {
						s.Error(err)
					}
					if err := a.Check(s.Context()); err != nil {
						s.Errorf("Check: %v", err)
					}
				})
			} else {
				time.Sleep(time.Minute)
			}
		}
		for n := range 16 {
			if err := c.Terminate(s.Context(), durable.InstanceID(fmt.Sprint("i", n)), ""); err != nil {
				s.Fatal(err)
			}
		}
		all.Wait()
		ctx, cancel := context.WithTimeout(s.Context(), time.Second)
		defer cancel()
		id, err := c.StartByName(s.Context(), "Nobody", nil)
		if err != nil {
			s.Fatal(err)
		}
		if err := a.AwaitEnd(ctx, string(id)); !errors.Is(err, context.DeadlineExceeded) {
			s.Errorf("AwaitEnd within a second: %v", err)
		}
		stopOther()
		stop()
	})
}

// While a partition is released, its store is closed before the ownership has ended. A call that reads
// then repeats its read.
func TestRead_IsRepeatedWhileThePartitionIsReleased(t *testing.T) {
	inBubble(t, func(s *simulated) {
		a, _ := s.open("a")
		stop := s.work(a)
		time.Sleep(time.Minute)
		for partition := range partitionlog.DefaultPartitionCount {
			reads := 0
			err := a.Read(s.Context(), partition, func() error {
				if reads++; reads == 1 {
					return fmt.Errorf("read: %w", logstore.ErrClosed)
				}
				return nil
			})
			if err != nil || reads != 2 {
				s.Errorf("partition %d: %d reads, %v; want 2", partition, reads, err)
			}
		}
		stop()
	})
}
