package durable_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

func TestScenarios_NameTestsThatExist(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("SCENARIOS.md")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile("`([a-z/]+)\\.((?:Test|Example)\\w*)`").FindAllStringSubmatch(string(text), -1)
	if len(names) < 60 {
		t.Errorf("%d tests are named, want at least 60", len(names))
	}
	for _, n := range names {
		files, err := filepath.Glob(filepath.Join("..", n[1], "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, f := range files {
			source, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(source), "\nfunc "+n[2]+"(")
		}
		if !found {
			t.Errorf("%s has no %s", n[1], n[2])
		}
	}
}

func plusOne(_ context.Context, n int) (int, error) { return n + 1, nil }

func explode(context.Context, int) (int, error) { return 0, errors.New("Kah-BOOOOOM!!!") }

func TestScenario_ChainOfTenActivities(t *testing.T) {
	t.Parallel()
	chain := func(ctx *durable.Context, n int) (int, error) {
		var err error
		for i := 0; i < 10 && err == nil; i++ {
			n, err = durable.CallActivity(ctx, plusOne, n).Await()
		}
		return n, err
	}
	hub := durabletest.New(t, durable.Orchestrator("Chain", chain), durable.Activity("PlusOne", plusOne))
	i := durabletest.Start(hub, chain, 0)
	if out, err := i.Wait(); err != nil || out != 10 {
		t.Errorf("got %d, %v, want 10", out, err)
	}
	next := 0
	for _, e := range i.History() {
		if e.Type() == history.TypeTaskScheduled {
			if e.Head().EventID != next {
				t.Errorf("activity %d has the ID %d", next, e.Head().EventID)
			}
			next++
		}
	}
	if next != 10 {
		t.Errorf("%d activities, want 10", next)
	}
}

func TestScenario_ErrorsOfActivitiesAreHandledInALoop(t *testing.T) {
	t.Parallel()
	tryCatch := func(ctx *durable.Context, n int) (caught int, _ error) {
		for range n {
			if _, err := durable.CallActivity(ctx, explode, 0).Await(); err != nil && strings.Contains(err.Error(), "Kah-BOOOOOM!!!") {
				caught++
			}
		}
		return caught, nil
	}
	hub := durabletest.New(t, durable.Orchestrator("TryCatchLoop", tryCatch), durable.Activity("Explode", explode))
	if out, err := durabletest.Run(hub, tryCatch, 5); err != nil || out != 5 {
		t.Errorf("got %d, %v, want 5", out, err)
	}
}

func TestScenario_TenEventsArriveInTheOrderInWhichTheyWereRaised(t *testing.T) {
	t.Parallel()
	const number = durable.Event[int]("Number")
	inOrder := func(ctx *durable.Context, _ durable.Void) (string, error) {
		for want := range 10 {
			got, err := number.Wait(ctx).Await()
			if err != nil {
				return "", err
			}
			if got != want {
				return "", fmt.Errorf("got %d, want %d", got, want)
			}
		}
		return "in order", nil
	}
	hub := durabletest.New(t, durable.Orchestrator("InOrder", inOrder))
	i := durabletest.Start(hub, inOrder, durable.Void{})
	for n := range 10 {
		durabletest.Raise(i, number, n)
	}
	if out, err := i.Wait(); err != nil || out != "in order" {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestScenario_EventOfAnotherNameLetsNothingGoOn(t *testing.T) {
	t.Parallel()
	const wanted, other = durable.Event[int]("Wanted"), durable.Event[int]("Other")
	wait := func(ctx *durable.Context, _ durable.Void) (int, error) {
		return wanted.Wait(ctx).AwaitTimeout(time.Hour)
	}
	hub := durabletest.New(t, durable.Orchestrator("Wait", wait))
	i := durabletest.Start(hub, wait, durable.Void{})
	durabletest.Raise(i, other, 1)
	if _, err := i.Wait(); err == nil || hub.Elapsed() != time.Hour {
		t.Errorf("it ended with %v after %v, want a timeout after an hour", err, hub.Elapsed())
	}
}

func TestScenario_TenGenerationsWithATimerEach(t *testing.T) {
	t.Parallel()
	var count func(*durable.Context, int) (int, error)
	count = func(ctx *durable.Context, n int) (int, error) {
		if n == 10 {
			return n, nil
		}
		if err := ctx.Sleep(0); err != nil {
			return 0, err
		}
		return durable.ContinueAsNew(ctx, count, n+1)
	}
	hub := durabletest.New(t, durable.Orchestrator("Count", count))
	if out, err := durabletest.Run(hub, count, 0); err != nil || out != 10 {
		t.Errorf("got %d, %v, want 10", out, err)
	}
}
