package simulated_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A client dies at a request of a start, or its caller gives up while the request hangs. Then
// either the instance runs, or nothing is left of it, without another start. Another start of the
// same ID, immediately or later, is rejected or runs the instance.
func TestStart_ThatIsInterruptedRunsOrLeavesNothing(t *testing.T) {
	cases := 0
	for _, large := range []bool{false, true} {
		for n := range 4 {
			for _, fault := range []azsim.Fault{azsim.KillBefore, azsim.KillAfter, azsim.Slow, azsim.Late, azsim.Twice, azsim.Echo} {
				if cases++; cases%usual().startSample != 0 {
					continue
				}
				t.Run(fmt.Sprintf("large %v, %v request %d", large, fault, n), func(t *testing.T) { cutOffStart(t, large, n, fault) })
			}
		}
	}
}

// failClient returns a decide function that injects fault into the client's n-th request since
// armed was set, counting from 0.
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

// withStarts calls f in a bubble with a hub, one worker, a client whose requests decide can make
// fail, and another client.
func withStarts(t *testing.T, decide func(azsim.Request) azsim.Fault, f func(fl *fleet, failing, other *durable.Client)) {
	synctest.Test(t, func(t *testing.T) {
		account := azsim.New(azsim.Config{Seed: 5, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond, Decide: decide})
		defer account.End()
		fl := &fleet{
			T: t, account: account, began: time.Now(), running: map[string]*member{},
			config: azurestorage.Config{TaskHub: "Again", PartitionCount: 1, MaxQueuePollingInterval: 20 * time.Second},
		}
		defer func() { fl.leave("one") }()
		registry := durable.NewRegistry(durable.Orchestrator("HelloSequence", helloSequence))
		client := func(name string) *durable.Client {
			hub, _ := fl.hub(name, nil)
			return durable.NewClient(hub, registry)
		}
		failing, other := client("client"), client("another")
		fl.join("one", nil)
		warm, err := failing.StartByName(t.Context(), "HelloSequence", nil, durable.InstanceID("warm-up"))
		if err != nil {
			t.Fatal(err)
		}
		fl.awaitDone(other, warm)
		f(fl, failing, other)
	})
}

// awaitDone waits until an instance has completed.
func (f *fleet) awaitDone(c *durable.Client, id durable.InstanceID) {
	f.Helper()
	soon, cancel := context.WithTimeout(f.Context(), time.Minute)
	defer cancel()
	if _, err := durable.InstanceOf[[]string](c, id).Wait(soon); err != nil {
		f.Fatalf("waiting for instance %s: %v", id, err)
	}
}

func cutOffStart(t *testing.T, large bool, n int, fault azsim.Fault) {
	note, input := durable.Tags{"note": "kept"}, json.RawMessage(nil)
	if large {
		input = json.RawMessage(`{"text":"` + strings.Repeat("x", 50_000) + `"}`)
	}
	for _, atOnce := range []bool{true, false} {
		var armed bool
		withStarts(t, failClient(&armed, n, fault), func(f *fleet, failing, other *durable.Client) {
			t := f.T
			start := func(c *durable.Client) error {
				timed, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := c.StartByName(timed, "HelloSequence", input, durable.InstanceID("a"), note)
				return err
			}
			armed = true
			first := start(failing)
			var second error
			if atOnce {
				if second = start(other); second != nil && !errors.Is(second, provider.ErrInstanceExists) {
					t.Fatalf("the second start returned %v", second)
				}
			}
			time.Sleep(2 * time.Hour) // leftover messages were discarded
			state, err := other.Status(t.Context(), "a", durable.Fetch{})
			switch {
			case errors.Is(err, durable.ErrInstanceNotFound):
				if first == nil || atOnce {
					t.Errorf("no instance exists although its starts returned %v and %v", first, second)
				}
			case err != nil || state.Status != history.Completed || state.Tags["note"] != note["note"]:
				t.Errorf("%v; %+v", err, state)
			}
			for _, queue := range f.account.Queues() {
				for _, m := range f.account.Messages(queue) {
					if !strings.HasSuffix(queue, "-poison") { // a copy of a message whose blob was deleted
						t.Errorf("left in %s: %s", queue, m.Text)
					}
				}
			}
			if err := start(other); err != nil {
				t.Errorf("a start two hours later returned %v", err)
			}
			f.awaitDone(other, "a")
		})
	}
}

// The message of a rejected start with a large input is duplicated by the service. The blob is
// deleted with the first message. The duplicate can never be read and is set aside.
func TestStart_ThatIsRejectedLeavesNoMessageWithoutItsBlob(t *testing.T) {
	var armed bool
	echo := func(r azsim.Request) azsim.Fault {
		if armed && r.Worker == "client" && r.Operation == "PutMessage" {
			return azsim.Echo
		}
		return azsim.None
	}
	withStarts(t, echo, func(f *fleet, failing, other *durable.Client) {
		t := f.T
		if _, err := other.StartByName(t.Context(), "HelloSequence", nil, durable.InstanceID("a"), durable.StartAt(time.Now().Add(time.Hour))); err != nil {
			t.Fatal(err)
		}
		armed = true
		input := json.RawMessage(`{"text":"` + strings.Repeat("x", 50_000) + `"}`)
		if _, err := failing.StartByName(t.Context(), "HelloSequence", input, durable.InstanceID("a")); !errors.Is(err, provider.ErrInstanceExists) {
			t.Fatalf("the second start returned %v", err)
		}
		time.Sleep(2 * time.Hour)
		f.awaitDone(other, "a")
		var aside int
		for _, queue := range f.account.Queues() {
			for _, m := range f.account.Messages(queue) {
				if strings.HasSuffix(queue, "-poison") {
					aside++
					continue
				}
				t.Errorf("left in %s: %s", queue, m.Text)
			}
		}
		if aside != 1 {
			t.Errorf("%d messages are set aside, want 1", aside)
		}
	})
}

// The worker that owns the partition resends a missing start message, once, with the input and the
// tags of the instance.
func TestStart_WithAMissingMessageIsSentAgain(t *testing.T) {
	withStarts(t, nil, func(f *fleet, _, other *durable.Client) {
		t := f.T
		f.leave("one")
		for _, id := range []durable.InstanceID{"a", "b"} {
			if _, err := other.StartByName(t.Context(), "HelloSequence", nil, id, durable.Tags{"note": "kept"}); err != nil {
				t.Fatal(err)
			}
		}
		c, err := azqueue.NewServiceClientFromConnectionString(f.account.ConnectionString(), &azqueue.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: f.account.Worker("admin")}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.NewQueueClient("again-control-00").ClearMessages(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		f.join("one", nil)
		time.Sleep(10 * time.Minute)
		for _, id := range []durable.InstanceID{"a", "b"} {
			f.awaitDone(other, id)
			if state, err := other.Status(t.Context(), id, durable.Fetch{}); err != nil || state.Tags["note"] != "kept" {
				t.Errorf("%v; %+v", err, state)
			}
		}
		scans := 0
		before := f.elapsed()
		time.Sleep(time.Hour)
		for _, e := range f.account.Log() {
			if e.AppliedAt > before && e.Worker == "one" && e.Operation == "QueryEntities" && e.Target == "AgainInstances" {
				scans++
			}
		}
		if scans != 12 {
			t.Errorf("an idle worker scanned %d times in an hour, want 12", scans)
		}
	})
}
