package azurestorage

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

func always() bool { return true }

func TestEndings_NotifyAllWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e endings
		over := make(chan error, 3)
		await := func(ctx context.Context) {
			state, err := e.await(ctx, "a", always)
			if err == nil && (state == nil || state.Name != "A") {
				err = fmt.Errorf("it ended as %+v", state)
			}
			over <- err
		}
		for range 2 {
			go await(t.Context())
		}
		timed, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go await(timed)
		time.Sleep(2 * time.Second)
		if err := <-over; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the waiter with a timeout got %v, want DeadlineExceeded", err)
		}
		e.announce("b", nil)
		synctest.Wait()
		if len(over) > 0 {
			t.Error("a waiter was notified of another instance's end")
		}
		e.announce("a", &provider.InstanceState{Name: "A"})
		for range 2 {
			if err := <-over; err != nil {
				t.Error(err)
			}
		}
		if len(e.awaited) != 0 {
			t.Errorf("waiters are left: %v", e.awaited)
		}
	})
}

func TestEndings_NotifyOneLateWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e endings
		e.announce("a", nil)
		if _, err := e.await(t.Context(), "a", always); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := e.await(ctx, "a", always); err == nil {
			t.Error("one end notified two waiters")
		}
		for i := range 2 * maxRecentEndings {
			e.announce(fmt.Sprint(i), nil)
		}
		if len(e.recent) > maxRecentEndings || len(e.order) > maxRecentEndings {
			t.Errorf("%d ends are remembered, want at most the limit", len(e.recent))
		}
	})
}

func TestEndings_DoNotWaitForAnEndThatIsNotAnnounced(t *testing.T) {
	var e endings
	state, err := e.await(t.Context(), "a", func() bool { return false })
	if state != nil || err != nil || len(e.awaited) != 0 {
		t.Errorf("got %v, %v and %d waiters; want none", state, err, len(e.awaited))
	}
}
