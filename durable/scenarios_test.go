package durable_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// catalog lists the numbers of all scenarios.
const catalog = "1-2 4-5 7-8 12-15 17 20-28 30-32 41-42 45-47 49-50 52-54 57 64 67-68 72-74 79 87 90-92 94-97 102-103 105 " +
	"107-108 110-114 119 121-125 132 134 136 140-143 146-147 149 154 156-157 167 172-175 178 186 189 204-205 " +
	"211 213 224 227 230 232-233 242 244-246 250 269-270 273 291-292 295-296 299 303 305-306 309-311 314-316 " +
	"320-332 334-339 342-343 354-357 367 370 372-387 392 395 401 403-404 411-413"

func scenarios(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("SCENARIOS.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestScenarios_AreAllTestedOrExcused(t *testing.T) {
	t.Parallel()
	listed := make(map[int]bool)
	for _, row := range regexp.MustCompile(`(?m)^\| ([\d, ]+) \|(.*)\|$`).FindAllStringSubmatch(scenarios(t), -1) {
		if strings.Trim(row[2], " |") == "" {
			t.Errorf("the row of %s is empty", row[1])
		}
		for number := range strings.SplitSeq(row[1], ",") {
			n, err := strconv.Atoi(strings.TrimSpace(number))
			if err != nil {
				t.Errorf("%q in the row of %s: %v", number, row[1], err)
			}
			listed[n] = true
		}
	}
	for r := range strings.FieldsSeq(catalog) {
		var from, to int
		if n, _ := fmt.Sscanf(r, "%d-%d", &from, &to); n == 1 {
			to = from
		}
		for n := from; n <= to; n++ {
			if !listed[n] {
				t.Errorf("scenario %d is neither tested nor excused", n)
			}
			delete(listed, n)
		}
	}
	for n := range listed {
		t.Errorf("scenario %d does not exist", n)
	}
}

func TestScenarios_NameTestsThatExist(t *testing.T) {
	t.Parallel()
	names := regexp.MustCompile("`([a-z0-9/]+)\\.((?:Test|Example)\\w*)`").FindAllStringSubmatch(scenarios(t), -1)
	if len(names) < 120 {
		t.Errorf("SCENARIOS.md names %d tests, want at least 120", len(names))
	}
	sources := make(map[string]string)
	for _, n := range names {
		if _, ok := sources[n[1]]; !ok {
			sources[n[1]] = testSources(t, n[1])
		}
		if !strings.Contains(sources[n[1]], "\nfunc "+n[2]+"(") {
			t.Errorf("%s has no %s", n[1], n[2])
		}
	}
}

// testSources returns the source of all tests of a package.
func testSources(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, f := range files {
		source, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(source)
	}
	return all.String()
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

func TestScenario_EventOfAnotherNameIsIgnored(t *testing.T) {
	t.Parallel()
	const wanted, other = durable.Event[int]("Wanted"), durable.Event[int]("Other")
	wait := func(ctx *durable.Context, _ durable.Void) (int, error) {
		return wanted.Wait(ctx).AwaitTimeout(time.Hour)
	}
	hub := durabletest.New(t, durable.Orchestrator("Wait", wait))
	i := durabletest.Start(hub, wait, durable.Void{})
	durabletest.Raise(i, other, 1)
	if _, err := i.Wait(); err == nil || hub.Elapsed() != time.Hour {
		t.Errorf("ended with %v after %v, want a timeout after an hour", err, hub.Elapsed())
	}
}

func TestScenario_TenGenerationsWithATimerEach(t *testing.T) {
	t.Parallel()
	var count func(*durable.Context, int) (int, error)
	count = func(ctx *durable.Context, n int) (int, error) {
		if n == 10 {
			return n, nil
		}
		ctx.Sleep(0)
		return durable.ContinueAsNew(ctx, count, n+1)
	}
	hub := durabletest.New(t, durable.Orchestrator("Count", count))
	if out, err := durabletest.Run(hub, count, 0); err != nil || out != 10 {
		t.Errorf("got %d, %v, want 10", out, err)
	}
}
