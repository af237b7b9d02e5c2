package durable_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// attentive is a hub that reports the end of an instance within a millisecond. With a
// failure, AwaitEnd returns it instead.
type attentive struct {
	*memhub.Hub
	failure error
}

func (a attentive) AwaitEnd(ctx context.Context, id string) error {
	for a.failure == nil {
		if s, err := a.Instance(ctx, id, provider.Fetch{}); err != nil || s.Status.IsTerminal() {
			return err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return a.failure
}

func TestWait_ReturnsAsSoonAsTheHubReportsTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		failure error
		limit   time.Duration
	}{
		"a hub that reports the end":     {nil, time.Second + 5*time.Millisecond},
		"a hub that does not support it": {provider.ErrNotSupported, 3 * time.Second},
		"a hub that fails":               {errors.New("no"), 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, r := attentive{memhub.New(), c.failure}, tracedFunctions()
				defer run(t, h, r, durable.Config{})()
				client := durable.NewClient(h, r)
				i, err := durable.Start(t.Context(), client, tracedListener, durable.Void{})
				if err != nil {
					t.Fatal(err)
				}
				go func() {
					time.Sleep(time.Second)
					if err := traced.Raise(t.Context(), client, i.ID, "x"); err != nil {
						t.Error(err)
					}
				}()
				began := time.Now()
				if _, err := i.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took > c.limit {
					t.Errorf("waited %v, want at most %v", took, c.limit)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 0)
				defer cancel()
				if _, err := durable.InstanceOf[string](client, "nobody").Wait(ctx); err == nil {
					t.Error("Wait did not fail for an instance that does not exist")
				}
			})
		})
	}
}

// follower is a hub that runs the instances its clients wait for. It counts status
// queries.
type follower struct {
	*memhub.Hub
	knows bool // Follow returns the final state
	asked atomic.Int32
}

func (f *follower) Follow(ctx context.Context, id string) *provider.InstanceState {
	for {
		s, err := f.Hub.Instance(ctx, id, provider.Fetch{Output: true})
		if err != nil || s.Status.IsTerminal() && !f.knows {
			return nil
		}
		if s.Status.IsTerminal() {
			return s
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return nil
		}
	}
}

func (f *follower) Runs(id string) bool {
	s, err := f.Hub.Instance(context.Background(), id, provider.Fetch{})
	return err == nil && !s.Status.IsTerminal()
}

func (f *follower) Instance(ctx context.Context, id string, fetch provider.Fetch) (*provider.InstanceState, error) {
	f.asked.Add(1)
	return f.Hub.Instance(ctx, id, fetch)
}

func TestWait_RarelyPollsIfTheHubRunsTheInstance(t *testing.T) {
	for name, c := range map[string]struct {
		knows bool
		asked int32
	}{
		"a hub that reports the final state": {true, 2}, // one every 2 seconds
		"a hub that reports nothing":         {false, 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, r := &follower{Hub: memhub.New(), knows: c.knows}, tracedFunctions()
				defer run(t, h, r, durable.Config{})()
				client := durable.NewClient(h, r)
				i, err := durable.Start(t.Context(), client, tracedListener, durable.Void{})
				if err != nil {
					t.Fatal(err)
				}
				go func() {
					time.Sleep(5 * time.Second)
					if err := traced.Raise(t.Context(), client, i.ID, "x"); err != nil {
						t.Error(err)
					}
				}()
				h.asked.Store(0)
				if _, err := i.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
				if n := h.asked.Load(); n != c.asked {
					t.Errorf("queried the status %d times, want %d", n, c.asked)
				}
				if err := traced.Raise(t.Context(), client, i.ID, "x"); !errors.Is(err, durable.ErrInstanceEnded) {
					t.Errorf("raise event for an ended instance: %v; want ErrInstanceEnded", err)
				}
			})
		})
	}
}
