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

// trip is how long a request and its answer take.
const trip = 2 * time.Millisecond

// criticalPath runs a sequence of three in a process that shares its hub with
// the client, and returns how many requests followed each other until the
// client had the result, with what was asked meanwhile.
func criticalPath(t *testing.T, extended bool) (trips float64, asked string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		account := azsim.New(azsim.Config{Seed: 1, MinLatency: trip / 2, MaxLatency: trip/2 + 1})
		defer account.Wait()
		p := startProcessWith(t, account, "w1", func() {}, durable.Config{NoExtendedSessions: !extended})
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
		trips, asked = float64(took)/float64(trip), b.String()
		p.stop()
	})
	return trips, asked
}

// What has to be written one after the other is the row of the start, a work item and a
// history for each activity, the last history and the row of the end. Nothing else is waited
// for.
func TestOperations_ACriticalPathOfAHelloSequence(t *testing.T) {
	for name, c := range map[string]struct {
		extended bool
		want     float64
	}{
		"with extended sessions":    {true, 9},
		"without extended sessions": {false, 9},
	} {
		t.Run(name, func(t *testing.T) {
			trips, asked := criticalPath(t, c.extended)
			if trips < c.want-0.1 || trips > c.want+0.1 {
				t.Errorf("%.2f round trips, want %v:\n%s", trips, c.want, asked)
			}
			if strings.Contains(asked, "QueryEntities") {
				t.Errorf("the status was asked for, though the process knows it:\n%s", asked)
			}
		})
	}
}
