package partitionlog_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// slowMail is an account that downloads a mailbox at 250 kB per second and truncates every fifth
// response.
func slowMail() azsim.Config {
	isMail := func(r azsim.Request) bool {
		return r.Operation == "GetBlob" && (strings.Contains(r.Path, "/mail-") || strings.Contains(r.Path, "/letter-"))
	}
	return azsim.Config{
		Seed: 1, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond,
		Bandwidth: func(r azsim.Request) int {
			if isMail(r) {
				return 250_000
			}
			return 0
		},
		Decide: func(r azsim.Request) azsim.Fault {
			if isMail(r) && r.Roll%5 == 0 {
				return azsim.Cut
			}
			return azsim.None
		},
	}
}

// slowUploads is an account to which the client uploads letters at 100 kB per second.
func slowUploads() azsim.Config {
	return azsim.Config{
		Seed: 1, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond,
		Bandwidth: func(r azsim.Request) int {
			if r.Worker == "client" && strings.Contains(r.Path, "/letter-") {
				return 100_000
			}
			return 0
		},
	}
}

// send sends an event of the given size to the instance "a".
func (s *simulated) send(h *partitionlog.Hub, size int) {
	s.Helper()
	input, err := json.Marshal(strings.Repeat("x", size))
	if err != nil {
		s.Fatal(err)
	}
	event := &history.EventRaised{Header: history.NewHeader(time.Now()), Name: "E", Input: new(string(input))}
	ctx, cancel := context.WithTimeout(s.Context(), time.Hour)
	defer cancel()
	if err := h.Send(ctx, provider.TaskMessage{Event: event, Target: history.OrchestrationInstance{InstanceID: "a"}}); err != nil {
		s.Error(err)
	}
}

// A worker receives mail that takes minutes to download or to upload: many small events, one that almost
// fills a block, and a letter.
func TestHub_ReceivesMailThatTakesMinutes(t *testing.T) {
	t.Run("to download", func(t *testing.T) { receivesMail(t, slowMail()) })
	t.Run("to upload", func(t *testing.T) { receivesMail(t, slowUploads()) })
}

func receivesMail(t *testing.T, account azsim.Config) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &simulated{T: t, account: azsim.New(account)}
		defer s.account.End()
		client, _ := s.openWith("client", partitionlog.Config{PartitionCount: 1})
		instance := history.OrchestrationInstance{InstanceID: "a", ExecutionID: "e"}
		start := &history.ExecutionStarted{Header: history.NewHeader(time.Now()), Name: "Hello", Instance: instance}
		if err := client.StartInstance(s.Context(), provider.TaskMessage{Event: start, Target: instance}, nil); err != nil {
			s.Fatal(err)
		}
		time.Sleep(10 * time.Second) // until the client releases the partition
		sizes := []int{1 << 20, 1 << 20, 4_100_000, 9 << 20, 10}
		for _, size := range sizes {
			s.send(client, size)
		}
		h, _ := s.openWith("w", partitionlog.Config{PartitionCount: 1})
		ctx, cancel := context.WithTimeout(s.Context(), 10*time.Minute)
		defer cancel()
		ended := make(chan error)
		go func() { ended <- h.Run(ctx) }()
		item, err := h.NextOrchestration(ctx)
		if err != nil {
			s.Errorf("no work: %v", err)
		} else {
			if len(item.Messages) != 1+len(sizes) {
				s.Errorf("dispatched %d messages, want the start and %d events", len(item.Messages), len(sizes))
			}
			for i, m := range item.Messages {
				if e, ok := m.Event.(*history.EventRaised); ok && len(*e.Input) != sizes[i-1]+2 {
					s.Errorf("event %d has %d bytes, want %d", i, len(*e.Input), sizes[i-1]+2)
				}
			}
			if err := item.Session.Release(ctx); err != nil {
				s.Error(err)
			}
		}
		cancel()
		if err := errors.Join(<-ended, h.Close(), client.Close()); err != nil {
			s.Error(err)
		}
	})
}
