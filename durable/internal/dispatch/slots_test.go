package dispatch

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// All slots are taken, a fetch and a session wait, and one slot is released. The other call still waits, so
// the next session that becomes idle ends.
func TestSlots_OfIdleSessionsAreFreedForEachWaitingCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := &slots{taken: make(chan struct{}, 2), idle: idle{limit: 2, now: time.Now}}
		p.taken <- struct{}{}
		p.taken <- struct{}{}
		fetched := make(chan struct{})
		go func() {
			_, _ = fetch(ctx, p, func(ctx, _ context.Context) (int, error) {
				close(fetched)
				<-ctx.Done()
				return 0, ctx.Err()
			})
		}()
		synctest.Wait()
		entered := make(chan bool, 1)
		go func() { entered <- p.enter(ctx) }()
		synctest.Wait()
		p.release()
		synctest.Wait()
		session, leave := p.idle.enter(ctx, 0)
		if session.Err() == nil {
			t.Error("a session became idle and keeps a slot that is needed")
		}
		leave(false)
		p.release()
		<-fetched
		if !<-entered {
			t.Error("enter has no slot")
		}
		cancel()
	})
}

// A session that ends while it waits for a slot no longer needs one.
func TestSlots_ARequestThatEndsEndsNoSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := &slots{taken: make(chan struct{}, 1), idle: idle{limit: 1, now: time.Now}}
		p.taken <- struct{}{}
		entered := make(chan bool)
		go func() { entered <- p.enter(ctx) }()
		synctest.Wait()
		cancel()
		if <-entered {
			t.Error("enter has a slot")
		}
		session, leave := p.idle.enter(t.Context(), 0)
		if session.Err() != nil {
			t.Error("a session that became idle ends, although no session needs its slot")
		}
		leave(false)
	})
}
