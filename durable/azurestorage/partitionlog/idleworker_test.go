package partitionlog_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// startTook starts an instance and returns the duration of the call.
func (s *simulated) startTook(h *partitionlog.Hub, id string) time.Duration {
	s.Helper()
	began := time.Now()
	if err := startHello(s.Context(), h, id); err != nil {
		s.Error(err)
	}
	return time.Since(began)
}

// quiet returns a hub with an idle worker, and a client in another process. Appends to the bell
// fail while deaf is set.
func (s *simulated) quiet(partitions int) (worker, client *partitionlog.Hub, deaf *atomic.Bool, stop func()) {
	deaf = new(atomic.Bool)
	s.account = azsim.New(azsim.Config{Seed: 1, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond, Decide: func(r azsim.Request) azsim.Fault {
		if deaf.Load() && r.Operation == "AppendBlock" && strings.HasSuffix(r.Path, "/~bell") {
			return azsim.FailBefore
		}
		return azsim.None
	}})
	worker, _ = s.openWith("w", partitionlog.Config{PartitionCount: partitions})
	end := s.work(worker)
	client, _ = s.openWith("client", partitionlog.Config{PartitionCount: partitions})
	time.Sleep(10*time.Minute + 3*time.Second) // the worker now polls its mailboxes rarely
	return worker, client, deaf, func() {
		end()
		if err := client.Close(); err != nil {
			s.Error(err)
		}
	}
}

// The first message to an idle worker waits for the next heartbeat, up to 5 s. Later messages wait
// for up to a second.
func TestHub_AnswersWithin5SecondsWhenIdleAndWithinASecondUnderLoad(t *testing.T) {
	inBubble(t, func(s *simulated) {
		_, client, _, stop := s.quiet(1)
		defer stop()
		if took := s.startTook(client, "first"); took > 5500*time.Millisecond || took < time.Second {
			s.Errorf("the first start took %v, want 5 s at most; the worker is at rest", took)
		}
		for range 30 {
			time.Sleep(3 * time.Second)
			if took := s.startTook(client, "next "+time.Now().String()); took > 1500*time.Millisecond {
				s.Errorf("a start under load took %v, want at most about a second", took)
			}
		}
	})
}

// If the sender cannot ring the bell, the rare polls of an idle worker find the mail.
func TestHub_FindsMailWithoutARing(t *testing.T) {
	inBubble(t, func(s *simulated) {
		_, client, deaf, stop := s.quiet(1)
		defer stop()
		deaf.Store(true)
		if took := s.startTook(client, "a"); took > 36*time.Second || took < 6*time.Second {
			s.Errorf("the start took %v, want at most 30 s and more than with a ring", took)
		}
	})
}

// A worker with work of its own polls for mail every second.
func TestHub_PollsForMailWhileItWorks(t *testing.T) {
	inBubble(t, func(s *simulated) {
		worker, client, deaf, stop := s.quiet(1)
		defer stop()
		deaf.Store(true)
		instance := history.OrchestrationInstance{InstanceID: "local"}
		event := &history.EventRaised{Header: history.NewHeader(time.Now()), Name: "E"}
		if err := worker.Send(s.Context(), provider.TaskMessage{Event: event, Target: instance}); err != nil {
			s.Error(err)
		}
		time.Sleep(20 * time.Second)
		if took := s.startTook(client, "a"); took > 2500*time.Millisecond {
			s.Errorf("the start took %v, want about a second at most", took)
		}
	})
}

// A deleted bell is created again, and workers that listened to the old one hear the new one.
func TestHub_RecreatesADeletedBell(t *testing.T) {
	for _, workers := range []int{1, 2} {
		inOrder(t, func(s *simulated) {
			_, client, _, stop := s.quiet(4)
			defer stop()
			if workers == 2 {
				other, _ := s.open("other")
				defer s.work(other)()
				time.Sleep(5*time.Minute + 3*time.Second)
			}
			if n := s.account.Vanish(containerName, func(name string) bool { return name == "workers/~bell" }); n != 1 {
				s.Fatal("the bell blob does not exist")
			}
			time.Sleep(time.Minute)
			c := durable.NewClient(client, greetings)
			began := time.Now()
			s.greet(c, 1)
			if took := time.Since(began); took > 7*time.Second {
				s.Errorf("with %d workers, a sequence took %v, want 5 s for its start and some polls", workers, took)
			}
		})
	}
}

// Load reports the last heartbeats of the workers even if the clock of the reading process is
// wrong.
func TestLoad_UsesTheLastHeartbeatsByTheClockOfTheStorage(t *testing.T) {
	inBubble(t, func(s *simulated) {
		_, _, _, stop := s.quiet(2)
		defer stop()
		for _, ahead := range []time.Duration{-time.Hour, 0, time.Hour} {
			reader, w := s.openWith("reader", partitionlog.Config{PartitionCount: 2})
			w.Skew(ahead)
			load, err := reader.Load(s.Context())
			if err != nil || load.Workers != 1 || load.Owners[0] != "w" || load.Owners[1] != "w" {
				s.Errorf("with a clock that is ahead by %v: %+v, %v; want one worker", ahead, load, err)
			}
			if place, err := reader.QueuePosition(s.Context(), "a"); err != nil || place.Owner != "w" {
				s.Errorf("with a clock that is ahead by %v: the place is %+v, %v; want the owner", ahead, place, err)
			}
			if err := reader.Close(); err != nil {
				s.Error(err)
			}
		}
	})
}
