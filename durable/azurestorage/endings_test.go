package azurestorage

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestEndings_AreToldToAllWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e endings
		over := make(chan error, 3)
		for range 2 {
			go func() { over <- e.await(t.Context(), "a") }()
		}
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go func() { over <- e.await(impatient, "a") }()
		time.Sleep(2 * time.Second)
		if err := <-over; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the impatient one got %v", err)
		}
		e.tell("b")
		synctest.Wait()
		if len(over) > 0 {
			t.Error("somebody was told of another instance's end")
		}
		e.tell("a")
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
		e.tell("a")
		if err := e.await(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := e.await(ctx, "a"); err == nil {
			t.Error("an end was told twice")
		}
		for i := range 2 * maxRecentEndings {
			e.tell(fmt.Sprint(i))
		}
		if len(e.recent) > maxRecentEndings || len(e.order) > maxRecentEndings {
			t.Errorf("%d ends are remembered", len(e.recent))
		}
	})
}
