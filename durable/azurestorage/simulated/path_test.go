package simulated_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
)

// trip is the duration of a request and its response.
const trip = 2 * time.Millisecond

// criticalPath runs a sequence of three in a process that shares its hub with the client. It
// returns the number of consecutive round trips until the client has the result, and the log of all
// requests.
func criticalPath(t *testing.T, extended bool) (trips float64, requests string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		account := azsim.New(azsim.Config{Seed: 1, MinLatency: trip / 2, MaxLatency: trip/2 + 1})
		defer account.End()
		p := startProcessWith(t, account, "w1", func() {}, durable.Config{ExtendedSessionIdle: sessionIdle(extended)})
		time.Sleep(5 * time.Second)
		before := len(account.Log())
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		instance, err := durable.Start(ctx, p.client, three, 0, durable.InstanceID("i"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := instance.Wait(ctx); err != nil {
			t.Error(err)
		}
		took := time.Since(began)
		var b strings.Builder
		for _, e := range account.Log()[before:] {
			fmt.Fprintln(&b, e)
		}
		trips, requests = float64(took)/float64(trip), b.String()
		p.stop()
	})
	return trips, requests
}

// The consecutive writes are the row of the start, a work item and a history append per activity,
// the last append, and the final row. The client waits for nothing else.
func TestOperations_ACriticalPathOfAHelloSequence(t *testing.T) {
	for name, c := range map[string]struct {
		extended bool
		want     float64
	}{
		"with extended sessions":    {true, 9},
		"without extended sessions": {false, 9},
	} {
		t.Run(name, func(t *testing.T) {
			trips, requests := criticalPath(t, c.extended)
			if trips < c.want-0.1 || trips > c.want+0.1 {
				t.Errorf("%.2f round trips, want %v:\n%s", trips, c.want, requests)
			}
			if strings.Contains(requests, "QueryEntities") {
				t.Errorf("the process read a status that it knows:\n%s", requests)
			}
		})
	}
}
