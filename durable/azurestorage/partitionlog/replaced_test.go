package partitionlog_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain/chaintest"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

var replacements = chaintest.NewSeeds("replacement")

// event returns a message to an instance that does not exist.
func event(id string) provider.TaskMessage {
	return provider.TaskMessage{
		Event:  &history.EventRaised{Header: history.NewHeader(time.Now()), Name: "E"},
		Target: history.OrchestrationInstance{InstanceID: id},
	}
}

// wantDeleted fails unless err is a DeletedError.
func (s *simulated) wantDeleted(what string, err error) {
	s.Helper()
	if !errors.As(err, new(*partitionlog.DeletedError)) {
		s.Errorf("%s: %v; want a DeletedError", what, err)
	}
}

// Workers and clients of a hub keep running while the hub is deleted and created again. They stop
// with an error. They acknowledge no requests and write nothing to the new hub.
func TestHub_ProcessesOfADeletedHubStopAndLeaveTheNewOneAlone(t *testing.T) {
	replacements.Each(t, 2*time.Minute, func(t *testing.T, seed uint64, stop func() bool) {
		var rough atomic.Bool // set once all processes have used the old hub
		faults := chaintest.RandomFaults(40, func() bool { return stop() || !rough.Load() })
		s := &simulated{T: t, account: azsim.New(azsim.Config{
			Seed: seed, MinLatency: time.Millisecond, MaxLatency: 30 * time.Millisecond, Loose: true,
			Decide: func(r azsim.Request) azsim.Fault {
				if r.Worker == "admin" || r.Worker == "new" {
					return azsim.None
				}
				return faults(r)
			},
		})}
		defer s.account.End()
		open := func(name string) *partitionlog.Hub {
			h, _ := s.open(name)
			if err := h.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			return h
		}
		var old sync.WaitGroup
		for _, name := range []string{"a", "b"} {
			h := open(name)
			old.Go(func() {
				err := durable.NewWorker(h, greetings, durable.Config{Logger: slog.New(slog.DiscardHandler)}).Run(t.Context())
				s.wantDeleted("worker "+name, err)
				s.wantDeleted("check by worker "+name, h.Check(t.Context()))
				_ = h.Close() // its partitions were deleted
			})
		}
		var replaced atomic.Bool
		for n := range 3 {
			name := fmt.Sprint("client ", n)
			h := open(name)
			old.Go(func() {
				for i := 0; ; i++ {
					late := replaced.Load()
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					err := h.Send(ctx, event(fmt.Sprint(name, " ", i)))
					cancel()
					if late && err == nil {
						s.Errorf("%s: a message was acknowledged after the hub was replaced", name)
					}
					if errors.As(err, new(*partitionlog.DeletedError)) {
						break
					}
					time.Sleep(time.Duration(i%7) * 100 * time.Millisecond)
				}
				_, err := h.Instance(t.Context(), "a", provider.Fetch{})
				s.wantDeleted("read by "+name, err)
				_ = h.Close()
			})
		}
		rough.Store(true)
		time.Sleep(time.Duration(20+seed%20) * time.Second)
		admin, _ := s.open("admin")
		if err := admin.Delete(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(seed%5) * 100 * time.Millisecond)
		h := open("new")
		replaced.Store(true)
		end := s.work(h)
		s.greet(durable.NewClient(h, greetings), 16)
		old.Wait()
		s.greet(durable.NewClient(h, greetings), 16)
		end()
		copyOf, _ := s.open("new")
		if sum, err := copyOf.Totals(t.Context()); err != nil || sum.Instances != 32 {
			s.Errorf("the new hub has %v, %v; want 32 instances", sum, err)
		}
		if err := errors.Join(copyOf.Close(), admin.Close()); err != nil {
			t.Error(err)
		}
		chaintest.LogEnd(t, s.account, 60)
	})
}

// A process whose hub is deleted stops within seconds, even if it is idle.
func TestHub_AnIdleWorkerOfADeletedHubStops(t *testing.T) {
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprint("created again: ", again), func(t *testing.T) {
			inBubble(t, func(s *simulated) {
				h, _ := s.open("w")
				ended := make(chan error, 1)
				ctx, cancel := context.WithTimeout(s.Context(), 5*time.Minute)
				defer cancel()
				go func() { ended <- h.Run(ctx) }()
				time.Sleep(time.Minute)
				admin, _ := s.open("admin")
				if err := admin.Delete(s.Context(), true); err != nil {
					s.Fatal(err)
				}
				if again {
					other, _ := s.open("other")
					if err := errors.Join(other.Check(s.Context()), other.Close()); err != nil {
						s.Fatal(err)
					}
				}
				deleted := time.Now()
				s.wantDeleted("Run", <-ended)
				if took := time.Since(deleted); took > 5*time.Second {
					s.Errorf("the worker stopped after %v, want at most 5s", took)
				}
				s.wantDeleted("Instance", func() error { _, err := h.Instance(s.Context(), "a", provider.Fetch{}); return err }())
				_ = h.Close()
				if !again && len(s.account.Blobs()) > 0 {
					s.Error("the process created the hub again")
				}
			})
		})
	}
}
