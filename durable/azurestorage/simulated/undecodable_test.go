package simulated_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
)

const secretPayload = "a payload that must not be logged"

// undecodables are messages that this engine cannot decode, by queue.
var undecodables = map[string][]string{
	"fleet-control-00": {
		"no JSON and no Base64: " + secretPayload,
		`{"TaskMessage":{"Event":{"$type":"DurableTask.Core.History.OfTomorrowEvent, DurableTask.Core","EventType":"OfTomorrow","Input":"` + secretPayload + `"},"OrchestrationInstance":{"InstanceId":"i"}}}`,
	},
	"fleet-workitems": {
		`{"TaskMessage":{"Event":7,"OrchestrationInstance":{"InstanceId":"` + secretPayload + `"}}}`,
		`{"TaskMessage":{"Event":{"$type":"DurableTask.Core.History.EventRaisedEvent, DurableTask.Core","EventType":18,"EventId":-1,"Name":"n","Input":"` + secretPayload + `","Timestamp":"2026-01-01T00:00:00Z"},"OrchestrationInstance":{"InstanceId":"i"}}}`,
	},
}

type lockedBuffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(p)
}

func (b *lockedBuffer) count(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.all.String(), text)
}

// inFleetWithUndecodables runs f after an hour in which the queues had undecodable messages. Instances
// run normally in that hour.
func inFleetWithUndecodables(t *testing.T, change func(*azurestorage.Config), f func(f *fleet, hub *azurestorage.TaskHub, log *lockedBuffer)) {
	log := &lockedBuffer{}
	cfg := azurestorage.Config{PartitionCount: 1, Logger: slog.New(slog.NewTextHandler(log, nil)), AppLease: azurestorage.AppLease{Disabled: true}}
	inFleet(t, cfg, func(fl *fleet) {
		hub := fl.join("one", change)
		client := durable.NewClient(hub, nil)
		start := func(id string) {
			if _, err := client.StartByName(fl.Context(), "HelloSequence", nil, durable.InstanceID(id)); err != nil {
				fl.Fatal(err)
			}
			began := time.Now()
			fl.awaitDone(client, durable.InstanceID(id))
			if d := time.Since(began); d > time.Minute {
				fl.Errorf("%s took %v", id, d)
			}
		}
		start("before")
		for queue, texts := range undecodables {
			for _, text := range texts {
				fl.account.Put(queue, text, 0)
			}
		}
		for i := range 6 {
			time.Sleep(10 * time.Minute)
			start(fmt.Sprint(i))
		}
		time.Sleep(time.Minute) // for deletions in the background
		f(fl, hub, log)
	})
}

func (f *fleet) texts(queue string) (texts []string) {
	for _, m := range f.account.Messages(queue) {
		texts = append(texts, m.Text)
	}
	slices.Sort(texts)
	return texts
}

func sorted(texts []string) []string { return slices.Sorted(slices.Values(texts)) }

// A message that cannot be decoded stays in its queue, is received less and less often, and is
// logged once.
func TestUndecodable_IsLoggedOnceAndStaysForOtherWorkers(t *testing.T) {
	inFleetWithUndecodables(t, nil, func(f *fleet, hub *azurestorage.TaskHub, log *lockedBuffer) {
		found := hub.Undecodable()
		if len(found) != 4 || log.count("msg=MessageFailure") != 4 {
			f.Errorf("%d messages are reported and %d logged, want 4: %+v", len(found), log.count("msg=MessageFailure"), found)
		}
		for _, m := range found {
			if m.SetAside || m.Cause == "" || strings.Contains(m.Cause, secretPayload) || log.count("messageId="+m.ID) != 1 {
				f.Errorf("%+v is logged %d times, want once, without its payload", m, log.count("messageId="+m.ID))
			}
		}
		for _, text := range []string{"AbandoningMessage", secretPayload} {
			if n := log.count(text); n > 0 {
				f.Errorf("the log has %q %d times, want 0", text, n)
			}
		}
		for queue, want := range undecodables {
			if got := f.texts(queue); !slices.Equal(got, sorted(want)) {
				f.Errorf("%s has %q, want %q", queue, got, want)
			}
			for _, m := range f.account.Messages(queue) {
				// 10 receives in the first 17 minutes, then one every 10 minutes.
				if m.DequeueCount < 12 || m.DequeueCount > 15 {
					f.Errorf("%s was received %d times in an hour", m.Text, m.DequeueCount)
				}
			}
		}
		for _, e := range f.account.Log() {
			if strings.Contains(e.Path, "-poison") {
				f.Fatalf("%s %s, although setting aside is disabled", e.Operation, e.Path)
			}
		}
		// Another worker decodes them, or an administrator deletes them.
		service, err := azqueue.NewServiceClientFromConnectionString(f.account.ConnectionString(),
			&azqueue.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: f.account.Worker("cleaner")}})
		if err != nil {
			f.Fatal(err)
		}
		for queue := range undecodables {
			if _, err := service.NewQueueClient(queue).ClearMessages(f.Context(), nil); err != nil {
				f.Fatal(err)
			}
		}
		time.Sleep(30 * time.Minute)
		if found := hub.Undecodable(); len(found) > 0 {
			f.Errorf("half an hour after their deletion, %+v are reported", found)
		}
	})
}

// A message that is set aside is in the poison queue, unchanged. Any process can move it back.
func TestUndecodable_IsSetAsideIfConfiguredAndMovedBackOnRequest(t *testing.T) {
	aside := func(c *azurestorage.Config) { c.SetAsideUndecodable = true }
	inFleetWithUndecodables(t, aside, func(f *fleet, hub *azurestorage.TaskHub, log *lockedBuffer) {
		for queue, want := range undecodables {
			if got, rest := f.texts(queue+"-poison"), f.texts(queue); !slices.Equal(got, sorted(want)) || len(rest) > 0 {
				f.Errorf("%q are set aside, %q are not; want all of %q", got, rest, want)
			}
		}
		asideCount := func() (n int) {
			for _, m := range hub.Undecodable() {
				if m.SetAside {
					n++
				}
			}
			return n
		}
		if n := asideCount(); n != 4 || log.count("MessageSetAside") != 4 || log.count("msg=MessageFailure") != 4 {
			f.Errorf("%d messages are reported as set aside, %d are logged; want 4", n, log.count("MessageSetAside"))
		}
		admin, _ := f.hub("admin", nil)
		if n, err := admin.RetryUndecodable(f.Context()); n != 4 || err != nil {
			f.Errorf("RetryUndecodable moved %d messages, %v; want 4", n, err)
		}
		for queue, want := range undecodables {
			if got, rest := f.texts(queue), f.texts(queue+"-poison"); !slices.Equal(got, sorted(want)) || len(rest) > 0 {
				f.Errorf("%q are moved back, %q are not", got, rest)
			}
		}
		if err := hub.Check(f.Context()); err != nil || asideCount() > 0 {
			f.Errorf("%v; %d are reported as set aside although they were moved back", err, asideCount())
		}
		if n, err := hub.RetryUndecodable(f.Context()); n != 0 || err != nil {
			f.Errorf("the second RetryUndecodable moved %d messages, %v; want 0", n, err)
		}
		if log.count("part of the task hub was deleted") > 0 {
			f.Error("a missing poison queue was mistaken for a deleted part of the hub")
		}
	})
}

// A worker that dies between the copy and the deletion leaves both messages and loses none.
func TestUndecodable_IsSetAsideWithoutLossWhenTheWorkerDies(t *testing.T) {
	const undecodable, queue = "stranger", "fleet-control-00"
	for _, operation := range []string{"CreateQueue", "PutMessage", "DeleteMessage"} {
		for _, fault := range []azsim.Fault{azsim.KillBefore, azsim.KillAfter} {
			t.Run(fmt.Sprintf("%s, %v", operation, fault), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var armed atomic.Bool
					account := azsim.New(azsim.Config{Seed: 7, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond, Decide: func(r azsim.Request) azsim.Fault {
						if r.Operation == operation && armed.CompareAndSwap(true, false) {
							return fault
						}
						return azsim.None
					}})
					defer account.End()
					f := &fleet{T: t, account: account, began: time.Now(), running: map[string]*member{}, config: azurestorage.Config{
						TaskHub: "Fleet", PartitionCount: 1, SetAsideUndecodable: true, AppLease: azurestorage.AppLease{Disabled: true},
					}}
					f.join("one", nil)
					time.Sleep(time.Minute)
					armed.Store(true)
					account.Put(queue, undecodable, 9)
					time.Sleep(time.Minute)
					if armed.Load() || len(f.texts(queue))+len(f.texts(queue+"-poison")) == 0 {
						t.Errorf("fault injected: %v; the message is lost", !armed.Load())
					}
					f.kill("one")
					f.join("two", nil)
					time.Sleep(20 * time.Minute)
					if rest, aside := f.texts(queue), f.texts(queue+"-poison"); len(rest) > 0 || len(aside) == 0 || len(aside) > 2 {
						t.Errorf("%q are left, %q are set aside; want 0 and at most 2", rest, aside)
					}
					f.leave("two")
				})
			})
		}
	}
}
