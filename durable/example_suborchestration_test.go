package durable_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

func createSession(_ context.Context, device string) (string, error) {
	return "session of " + device, nil
}

func installFirmware(_ context.Context, session string) (bool, error) {
	return !strings.Contains(session, "toaster"), nil
}

// setUpDevice can run alone or as a child.
func setUpDevice(ctx *durable.Context, device string) (bool, error) {
	session, err := durable.CallActivity(ctx, createSession, device).Await()
	if err != nil {
		return false, err
	}
	return durable.CallActivity(ctx, installFirmware, session).Await()
}

// setUpSite sets up all devices of a site concurrently and combines the results.
func setUpSite(ctx *durable.Context, devices []string) (string, error) {
	retry := durable.RetryPolicy{MaxAttempts: 3, FirstInterval: time.Minute}
	tasks := make([]*durable.Task[bool], len(devices))
	for i, device := range devices {
		tasks[i] = durable.CallSubOrchestrator(ctx, setUpDevice, device, retry, durable.InstanceID("set up "+device))
	}
	ready, err := durable.AwaitAll(ctx, tasks...)
	if err != nil {
		return "", err
	}
	n := 0
	for _, ok := range ready {
		if ok {
			n++
		}
	}
	return fmt.Sprintf("%d of %d devices are ready", n, len(ready)), nil
}

// Call orchestrations from an orchestration.
func Example_subOrchestrations() {
	registry := durable.NewRegistry(
		durable.Orchestrator("SetUpSite", setUpSite),
		durable.Orchestrator("SetUpDevice", setUpDevice),
		durable.Activity("CreateSession", createSession),
		durable.Activity("InstallFirmware", installFirmware),
	)
	runExample(registry, setUpSite, []string{"lamp", "lock", "toaster"})
	// Output: 2 of 3 devices are ready
}

// Call an activity for each input, at most two at a time.
func ExampleMap() {
	measure := func(_ context.Context, word string) (int, error) { return len(word), nil }
	lengths := func(ctx *durable.Context, words []string) ([]int, error) { return durable.Map(ctx, measure, words, 2) }
	registry := durable.NewRegistry(durable.Orchestrator("Lengths", lengths), durable.Activity("Measure", measure))
	runExample(registry, lengths, []string{"one", "three", "fourteen"})
	// Output: [3 5 8]
}
