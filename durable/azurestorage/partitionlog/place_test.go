package partitionlog_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/durable/whytest"
)

// The owner of a partition knows its backlog exactly; other processes know it approximately.
func TestPlace_CountsTheMessagesBeforeAnInstanceThatHasNotStarted(t *testing.T) {
	inBubble(t, func(s *simulated) {
		open := func(name string) *partitionlog.Hub {
			c, err := azurestorage.ParseConnectionString(s.account.ConnectionString())
			if err != nil {
				s.Fatal(err)
			}
			h, err := partitionlog.Open(c, partitionlog.Config{
				TaskHub: "Sim", PartitionCount: 1, WorkerID: name, Transport: s.account.Worker(name), Logger: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				s.Fatal(err)
			}
			return h
		}
		client := open("client")
		defer func() { _ = client.Close() }()
		c := durable.NewClient(client, durable.NewRegistry())
		for n := range 5 {
			if _, err := c.StartByName(s.Context(), "Nobody", nil, durable.InstanceID(fmt.Sprint("i", n))); err != nil {
				s.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(30 * time.Second) // until the client has released the partition
		check := func(h *partitionlog.Hub, id string, want provider.QueuePosition) {
			s.Helper()
			if got, err := h.QueuePosition(s.Context(), id); err != nil || got != want {
				s.Errorf("Place of %s: %+v, %v; want %+v", id, got, err, want)
			}
		}
		check(client, "i2", provider.QueuePosition{MessagesAhead: 4}) // all stored messages except its own
		w := open("w")
		ctx, stop := context.WithCancel(s.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }() // acquires the partition and fetches the first message; no dispatcher requests more
		time.Sleep(time.Minute)
		for n := range 5 {
			check(w, fmt.Sprint("i", n), provider.QueuePosition{Owner: "w", MessagesAhead: max(0, n-1), IsExact: true})
		}
		check(client, "i2", provider.QueuePosition{Owner: "w", MessagesAhead: 4}) // as last reported by the owner
		wait, err := durable.NewClient(w, durable.NewRegistry()).Why(s.Context(), "i3")
		const told = "waits for a worker to start it: partition 0 has 2 messages ahead of it; owner: w"
		if err != nil || len(wait.Reasons) != 1 || wait.Reasons[0].String() != told {
			s.Errorf("why: %+v, %v; want %s", wait, err, told)
		}
		stop()
		if err := <-ended; err != nil {
			s.Error(err)
		}
		_ = w.Close()
	})
}

func TestUsage_MatchesTheRequestsOfTheAccount(t *testing.T) {
	inBubble(t, func(s *simulated) {
		h, _ := s.open("w")
		stop := s.work(h)
		s.greet(durable.NewClient(h, greetings), 3)
		stop()
		requests, errors := 0, 0
		for _, e := range s.account.Log() {
			requests++
			if e.Status >= 400 && e.Status != 404 && e.Status != 409 && e.Status != 412 {
				errors++
			}
		}
		want := provider.Usage{Part: "blob", Requests: int64(requests), Errors: int64(errors)}
		if got := h.Usage(); len(got) != 1 || got[0] != want || requests == 0 {
			s.Errorf("Usage: %+v; want %+v", got, want)
		}
	})
}

func TestStalls_InPartitionLogsAreAbandoned(t *testing.T) {
	inBubble(t, func(s *simulated) {
		h, _ := s.open("w")
		whytest.ExerciseStalls(s.T, h, durable.Config{})
		_ = h.Close() // its worker has stopped
	})
}

func TestWhy_NamesWhatAnInstanceInPartitionLogsWaitsFor(t *testing.T) {
	inBubble(t, func(s *simulated) {
		h, _ := s.open("w")
		whytest.Exercise(s.T, h)
		_ = h.Close() // its worker has stopped
	})
}
