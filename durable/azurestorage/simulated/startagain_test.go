package simulated_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A client dies at each request of a start. Another that insists on the start
// gets the instance to run, once, with the input and the tags that it has.
func TestStart_ThatWasCutOffIsMadeWholeByTheNext(t *testing.T) {
	for _, large := range []bool{false, true} {
		for n := range 4 {
			for _, fault := range []azsim.Fault{azsim.KillBefore, azsim.KillAfter} {
				t.Run(fmt.Sprintf("large %v, %v request %d", large, fault, n), func(t *testing.T) { startAfterDeath(t, large, n, fault) })
			}
		}
	}
}

// failClient returns what makes a request of the client go wrong: the nth, from 0,
// that it makes while it is armed.
func failClient(armed *bool, n int, fault azsim.Fault) func(azsim.Request) azsim.Fault {
	first := -1
	return func(r azsim.Request) azsim.Fault {
		if r.Worker != "client" || !*armed {
			return azsim.None
		}
		if first < 0 {
			first = r.Number
		}
		if r.Number == first+n {
			return fault
		}
		return azsim.None
	}
}

func startAfterDeath(t *testing.T, large bool, n int, fault azsim.Fault) {
	var armed bool
	decide := failClient(&armed, n, fault)
	synctest.Test(t, func(t *testing.T) {
		account := azsim.New(azsim.Config{Seed: 5, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond, Decide: decide})
		defer account.Wait()
		f := &fleet{
			T: t, account: account, began: time.Now(), running: map[string]*member{},
			config: azurestorage.Config{TaskHub: "Again", PartitionCount: 1, MaxQueuePollingInterval: time.Second},
		}
		defer func() { f.leave("one") }()
		registry := durable.NewRegistry(durable.Orchestrator("HelloSequence", helloSequence))
		client := func(name string) *durable.Client {
			hub, _ := f.hub(name, nil)
			return durable.NewClient(hub, registry)
		}
		note := durable.Tags{"note": "kept"}
		if large {
			note["note"] = strings.Repeat("x", 50_000)
		}
		start := func(c *durable.Client, id durable.InstanceID) error {
			_, err := c.StartByName(t.Context(), "HelloSequence", nil, id, note)
			return err
		}
		dying, insistent := client("client"), client("another")
		if err := start(dying, "warm-up"); err != nil {
			t.Fatal(err)
		}
		f.join("one", nil)
		if _, err := durable.InstanceOf[[]string](insistent, "warm-up").Wait(t.Context()); err != nil {
			t.Fatal(err)
		}

		armed = true
		died := start(dying, "a")
		time.Sleep(40 * time.Second) // what is on its way arrives
		again := start(insistent, "a")

		if again != nil && !errors.Is(again, provider.ErrInstanceExists) {
			t.Fatalf("the second start returned %v", again)
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := durable.InstanceOf[[]string](insistent, "a").Wait(soon); err != nil {
			t.Fatalf("the instance ended with %v", err)
		}
		state, err := insistent.Status(t.Context(), "a", provider.Fetch{})
		if err != nil || state.Tags["note"] != note["note"] {
			t.Errorf("%v, and tags of %d bytes, want %d", err, len(state.Tags["note"]), len(note["note"]))
		}
		time.Sleep(2 * time.Minute)
		ran := 0
		for _, row := range account.Rows("AgainHistory") {
			if row.PartitionKey == "a" && row.Text("EventType") == "ExecutionStarted" {
				ran++
			}
		}
		if ran != 1 && !(again == nil && died == nil) {
			t.Errorf("it ran %d times", ran)
		}
	})
}
