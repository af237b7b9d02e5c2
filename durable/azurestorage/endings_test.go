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

func TestEndings_AreToldToAllWhoWait(t *testing.T) {
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
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go await(impatient)
		time.Sleep(2 * time.Second)
		if err := <-over; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the impatient one got %v", err)
		}
		e.announce("b", nil)
		synctest.Wait()
		if len(over) > 0 {
			t.Error("somebody was told of another instance's end")
		}
		e.announce("a", &provider.InstanceState{Name: "A"})
		for range 2 {
			if err := <-over; err != nil {
				t.Error(err)
			}
		}
		if len(e.awaited) != 0 {
			t.Errorf("left: %v", e.awaited)
		}
	})
}

func TestEndings_AreToldOnceToWhoComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e endings
		e.announce("a", nil)
		if _, err := e.await(t.Context(), "a", always); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := e.await(ctx, "a", always); err == nil {
			t.Error("an end was told twice")
		}
		for i := range 2 * maxRecentEndings {
			e.announce(fmt.Sprint(i), nil)
		}
		if len(e.recent) > maxRecentEndings || len(e.order) > maxRecentEndings {
			t.Errorf("%d ends are remembered", len(e.recent))
		}
	})
}

func TestEndings_NobodyWaitsForWhatWillNotBeTold(t *testing.T) {
	var e endings
	state, err := e.await(t.Context(), "a", func() bool { return false })
	if state != nil || err != nil || len(e.awaited) != 0 {
		t.Errorf("got %v, %v, and %d are waited for", state, err, len(e.awaited))
	}
}
