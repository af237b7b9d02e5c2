package chaintest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
)

// ErrReplaced is the error of the functions that [Confirm] returns if the container holds another
// hub.
var ErrReplaced = errors.New("the container holds another hub")

// hubBlob is the blob that names the hub of a container.
const hubBlob = "hub.json"

// Confirm returns a function that fails with [ErrReplaced] if the container holds another hub.
func Confirm(c *store.Container, hub string) func(context.Context) error {
	return func(ctx context.Context) error {
		part, err := c.ReadPart(ctx, hubBlob, 0, 0)
		if err == nil && string(part.Content) != hub {
			err = ErrReplaced
		}
		return err
	}
}

// Identify stores hub as the hub of a container and returns the function that confirms it.
func Identify(t *testing.T, c *store.Container, hub string) func(context.Context) error {
	t.Helper()
	if err := c.CreateBlob(t.Context(), hubBlob, []byte(hub)); err != nil {
		t.Fatal(err)
	}
	return Confirm(c, hub)
}

// Replace deletes the container of a hub and creates it again for another hub.
func Replace(t *testing.T, account *azsim.Account, hub string) {
	t.Helper()
	c := Simulated(t, account, account.Worker(Setup))
	err := c.Delete(t.Context())
	if err == nil {
		err = c.Create(t.Context())
	}
	if err == nil {
		err = c.CreateBlob(t.Context(), hubBlob, []byte(hub))
	}
	if err != nil {
		t.Error(err)
	}
}

// A Replacement is a test run in which a hub is replaced while one of its processes is frozen.
type Replacement struct {
	*testing.T
	Account *azsim.Account
	Old     *store.Container // the container as the frozen process sees it
	New     *store.Container // the container as processes of the new hub see it
	done    chan struct{}
}

// IsDone reports whether the container holds the new hub.
func (r *Replacement) IsDone() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// EachReplacement freezes a process of the hub "old" before and after each of its requests. During
// the freeze the hub "new" replaces it. A process of "new" runs before the frozen process wakes,
// after it, or both. least is the minimum number of requests that old must make.
func EachReplacement(t *testing.T, least int, old, replacing func(r *Replacement)) {
	t.Helper()
	t.Parallel()
	requests := 0
	for at := 1; at == 1 || at <= requests; at += testshare.Amount(1, 4) {
		for i := range 12 {
			after, before, afterwards := i%2 == 0, i/4 != 1, i/4 != 0
			long := []time.Duration{3 * time.Second, 5 * time.Minute}[i/2%2] // a lease lasts longer than the first
			synctest.Test(t, func(t *testing.T) {
				account := azsim.New(azsim.Config{MinLatency: time.Millisecond, MaxLatency: 2 * time.Millisecond})
				setup := Simulated(t, account, account.Worker(Setup))
				if err := errors.Join(setup.Create(t.Context()), setup.CreateBlob(t.Context(), hubBlob, []byte("old"))); err != nil {
					t.Fatal(err)
				}
				p := NewProcess(account.Worker("old"))
				r := &Replacement{
					T: t, Account: account, Old: Simulated(t, account, p), New: Simulated(t, account, account.Worker("new")),
					done: make(chan struct{}),
				}
				worked := make(chan struct{})
				p.Freeze = func(n int, is bool) time.Duration {
					if n != at || is != after {
						return 0
					}
					go func() { // the test waits for worked
						defer close(worked)
						time.Sleep(time.Second)
						Replace(t, account, "new")
						close(r.done)
						if before {
							replacing(r)
						}
					}()
					return long
				}
				old(r)
				requests = max(requests, p.Requests())
				if at <= p.Requests() {
					<-worked
					if afterwards {
						replacing(r)
					}
					for _, b := range account.Blobs() {
						if hub := b.Metadata.Get("x-ms-meta-hub"); b.Name != hubBlob && hub != "new" && afterwards {
							t.Errorf("blob %s of hub %s still exists", b.Name, hub)
						}
					}
				}
				account.Wait()
				if t.Failed() {
					t.Logf("frozen at request %d for %v, after its effect: %v; the new hub works before the process wakes: %v\n%s", at, long, after, before, account.Trace())
				}
			})
			if t.Failed() {
				return
			}
		}
	}
	if requests < least {
		t.Errorf("the process made %d requests, want at least %d", requests, least)
	}
}
