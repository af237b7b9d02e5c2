package simulated_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
)

func lengthOf(_ context.Context, text string) (int, error) { return len(text), nil }

func measureTexts(ctx *durable.Context, lengths []int) (total int, err error) {
	for _, n := range lengths {
		n, err := durable.CallActivity(ctx, lengthOf, strings.Repeat("x", n)).Await()
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// Stored inputs can be read from the history, including inputs that are too long for a column.
// Replay ignores them.
func TestStoreInputs_StoresShortAndLongInputsInTheHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := azsim.New(azsim.Config{Seed: 1})
		defer account.End()
		r := durable.NewRegistry(durable.Orchestrator("Measure", measureTexts), durable.Activity("Length", lengthOf))
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() {
			cfg := durable.Config{Logger: slog.New(slog.DiscardHandler), StoreInputs: true}
			stopped <- durable.NewWorker(open(t, account.Worker("w"), account), r, cfg).Run(ctx)
		}()
		c := durable.NewClient(open(t, account.Worker("client"), account), r)
		time.Sleep(time.Second)
		i, err := durable.Start(ctx, c, measureTexts, []int{3, 100_000})
		if err != nil {
			t.Fatal(err)
		}
		if total, err := i.Wait(ctx); err != nil || total != 100_003 {
			t.Errorf("%d, %v", total, err)
		}
		events, err := c.History(ctx, i.ID)
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		for _, e := range events {
			if task, ok := e.(*history.TaskScheduled); ok && task.Input != nil {
				got = append(got, len(*task.Input)-len(`[""]`))
			}
		}
		if fmt.Sprint(got) != "[3 100000]" {
			t.Errorf("the history has inputs with %v characters, want 3 and 100,000", got)
		}
		if _, err := c.Purge(ctx, i.ID); err != nil {
			t.Error(err)
		}
		for _, b := range account.Blobs() {
			if b.Container == "sim-largemessages" {
				t.Errorf("blob %s is left after the purge", b.Name)
			}
		}
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}
