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

// A call of enter arrives between the moment at which fetch gets a slot and the moment at which it waits for
// an item. If fetch got its slot at once, the call is newer and gets the slot. If fetch has waited for the
// slot, it keeps it for a while.
func TestSlots_AFetchYieldsToNewerCalls(t *testing.T) {
	for _, atOnce := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			p := &slots{taken: make(chan struct{}, 1)}
			if !p.tryEnter() || p.tryEnter() {
				t.Fatal("want one slot")
			}
			entered := make(chan bool)
			go func() { entered <- p.enter(t.Context()) }()
			synctest.Wait()
			wait, stop := context.WithCancel(t.Context())
			p.setStopWait(stop, atOnce)
			if yields := wait.Err() != nil; yields != atOnce {
				t.Errorf("got the slot at once: %v; yields at once: %v", atOnce, yields)
			}
			time.Sleep(yieldInterval)
			synctest.Wait()
			if wait.Err() == nil {
				t.Errorf("got the slot at once: %v; does not yield", atOnce)
			}
			p.release()
			if !<-entered {
				t.Error("enter has no slot")
			}
		})
	}
}
