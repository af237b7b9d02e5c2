package simulated_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/whytest"
)

// waitForMuch waits for an unregistered activity, a timer and an event.
func waitForMuch(ctx *durable.Context, _ durable.Void) (durable.Void, error) {
	lost := durable.ActivityName[durable.Void, durable.Void]("Lost").Call(ctx, durable.Void{})
	timer := ctx.Timer(time.Hour)
	event := durable.Event[durable.Void]("go").Wait(ctx)
	durable.AwaitAny(ctx, lost, timer, event)
	return durable.Void{}, nil
}

func TestWhy_ReportsReasonsInAzureStorage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := azsim.New(azsim.Config{Seed: 1})
		defer account.End()
		registry := durable.NewRegistry(durable.Orchestrator("Much", waitForMuch))
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() {
			stopped <- durable.NewWorker(open(t, account.Worker("w"), account), registry, durable.Config{Logger: slog.New(slog.DiscardHandler)}).Run(ctx)
		}()
		c := durable.NewClient(open(t, account.Worker("client"), account), registry)
		reasons := func(id durable.InstanceID) (all []string) {
			w, err := c.Why(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range w.Reasons {
				all = append(all, r.String())
			}
			return all
		}
		time.Sleep(time.Second)
		i, err := durable.Start(ctx, c, waitForMuch, durable.Void{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		want := []string{`activity "Lost"`, `timer`, `event "go"`}
		if got := reasons(i.ID); !slices.Equal(got, want) {
			t.Errorf("reasons\n%q, want\n%q", got, want)
		}
		if err := c.Suspend(ctx, i.ID, "a pause"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got, want := reasons(i.ID), append([]string{"suspended: a pause"}, want...); !slices.Equal(got, want) {
			t.Errorf("reasons while suspended\n%q, want\n%q", got, want)
		}
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}

func TestWhy_FulfillsItsContractInAzureStorage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := azsim.New(azsim.Config{Seed: 1})
		defer account.End()
		whytest.Exercise(t, open(t, account.Worker("w"), account))
	})
}

func TestStalls_InAzureStorageEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := azsim.New(azsim.Config{Seed: 1})
		defer account.End()
		whytest.ExerciseStalls(t, open(t, account.Worker("w"), account), durable.Config{})
	})
}
