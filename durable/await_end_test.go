package durable_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// An attentive hub tells within a millisecond that an instance has ended, or
// fails at it.
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

func TestWait_IsOverAsSoonAsTheHubTellsOfTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		failure error
		limit   time.Duration
	}{
		"a hub that tells":            {nil, time.Second + 5*time.Millisecond},
		"a hub that cannot":           {provider.ErrNotSupported, 3 * time.Second},
		"a hub that fails at telling": {errors.New("no"), 3 * time.Second},
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
					t.Errorf("waited %v, want %v at most", took, c.limit)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 0)
				defer cancel()
				if _, err := durable.InstanceOf[string](client, "nobody").Wait(ctx); err == nil {
					t.Error("waited for an instance that is not there")
				}
			})
		})
	}
}
