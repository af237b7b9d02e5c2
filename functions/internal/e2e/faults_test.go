//go:build unix

package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/handler/processtest"
)

// A request of a start is delayed while its caller gives up or the process is killed. The instance then runs
// or leaves no trace, whether the start is repeated or not. An acknowledged start is never lost. (Workers
// also send missing messages of pending starts after some minutes. This test does not wait for that.)
func TestFaults_AnInterruptedStartRunsOrLeavesNothing(t *testing.T) {
	t.Parallel()
	const held = 3 * time.Second
	for _, test := range []struct {
		name    string
		request string // the form of azuritetest.Call after the hub's name
		fate    azuritetest.Handling
	}{
		{"the answer to the row's insert", "table InsertEntity %sInstances", azuritetest.Handling{ResponseDelay: held}},
		{"the row's insert", "table InsertEntity %sInstances", azuritetest.Handling{DeliveryDelay: held}},
		{"the answer to the message's insert", "queue PutMessage %s-control", azuritetest.Handling{ResponseDelay: held}},
		{"the message's insert", "queue PutMessage %s-control", azuritetest.Handling{DeliveryDelay: held}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if test.name != "the message's insert" {
				processtest.SkipInShortRuns(t)
			}
			proxy, through := newProxy(t, azuritetest.Start(t))
			v := newVictim(t, through, killLease, rand.New(rand.NewPCG(1, 1)))
			v.app = v.start()
			walk := map[string]any{"steps": 3}
			const want = "[1,4,9]"
			v.app.completed(v.app.start("Steps", walk).StatusQueryGetURI, time.Minute, want) // creates the hub

			hub := v.hub
			if strings.HasPrefix(test.request, "queue") {
				hub = strings.ToLower(hub)
				walk["note"] = strings.Repeat("x", 64<<10) // this process enqueues no messages for its small starts
			}
			request := fmt.Sprintf(test.request, hub)
			start := func(id string) string { return "/api/durabletask/orchestrators/Steps/" + id }
			// hold delays the next matching request. The returned channel is closed when the request arrives.
			hold := func() <-chan struct{} {
				met := make(chan struct{})
				var once sync.Once
				proxy.SetPlan(func(call azuritetest.Call) (fate azuritetest.Handling) {
					if strings.HasPrefix(call.String(), request) {
						once.Do(func() { fate = test.fate; close(met) })
					}
					return fate
				})
				return met
			}
			again := func(id string) {
				t.Helper()
				proxy.SetPlan(nil)
				eventually(t, time.Minute, "a second start of "+id, func() bool {
					got, err := v.app.try(http.MethodPost, start(id), walk)
					t.Logf("the second start of %s: %d, %v", id, got.status, err)
					return err == nil && (got.status == http.StatusAccepted || got.status == http.StatusConflict)
				})
			}
			wait := func(met <-chan struct{}) {
				t.Helper()
				select {
				case <-met:
				case <-time.After(patience.Limit()):
					t.Fatalf("no request %s", request)
				}
			}

			hold() // a very slow machine may not reach this request within a second
			impatient, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if got, err := v.app.tryWithin(impatient, http.MethodPost, start("timeout"), walk); err == nil {
				t.Errorf("a delayed start was answered with %d; want no response", got.status)
			}
			again("timeout")

			hold()
			front := azuritetest.NewProxy()
			t.Cleanup(front.Stop)
			front.SetPlan(func(azuritetest.Call) azuritetest.Handling {
				return azuritetest.Handling{Fault: azuritetest.Abandon, ResponseDelay: time.Second}
			})
			url, err := front.Service("app", v.app.url)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := v.app.try(http.MethodPost, url+start("closed"), walk); err == nil {
				t.Errorf("a start was answered with %d on a closed connection; want no response", got.status)
			}
			again("closed")

			for _, id := range []string{"killed-and-forgotten", "killed"} {
				met := hold()
				begun := make(chan struct{})
				go func(a *app) { // ends when the process is dead
					defer close(begun)
					for { // the app may not be ready
						got, err := a.try(http.MethodPost, start(id), walk)
						if err != nil || got.status != http.StatusServiceUnavailable {
							return
						}
						time.Sleep(100 * time.Millisecond)
					}
				}(v.app)
				wait(met)
				if test.fate.ResponseDelay > 0 { // most of the delay must remain
					time.Sleep(held / 6)
				}
				v.app.kill()
				<-begun
				v.app = v.start()
				if id == "killed" {
					again(id)
				}
			}
			for _, id := range []string{"timeout", "closed", "killed"} {
				v.app.completed("/api/durabletask/instances/"+id, time.Minute, want)
			}
			left := map[any]any{} // the worker discards a message without a row later
			eventually(t, time.Minute, "the completion of all instances", func() bool {
				done := true
				for _, row := range queryRows(t, v.connection, v.hub+"Instances", "") {
					left[row["PartitionKey"]] = row["RuntimeStatus"]
					done = done && row["RuntimeStatus"] == "Completed"
				}
				return done
			})
			t.Logf("instances at the end: %v", left)
		})
	}
}

// Two workers reach the storage through a proxy that drops, duplicates, delays and cuts requests, and that is
// unreachable for a while. The test kills workers repeatedly. All instances must complete, and no step may be
// counted twice.
//
// DURABLE_FAULTS is the duration of the test, such as 20m. It runs in waves; the default is one wave.
// DURABLE_FAULTS_SEED selects other faults.
func TestFaults_TwoWorkersCompleteAllInstances(t *testing.T) {
	processtest.SkipInShortRuns(t)
	t.Parallel()
	seed, until := uint64(1), time.Now()
	if text := os.Getenv("DURABLE_FAULTS_SEED"); text != "" {
		seed = parsed(t, text, func(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) })
	}
	if text := os.Getenv("DURABLE_FAULTS"); text != "" {
		until = until.Add(parsed(t, text, time.ParseDuration))
	}
	t.Logf("DURABLE_FAULTS_SEED=%d repeats the faults and the kills", seed)
	proxy, through := newProxy(t, azuritetest.Start(t))
	v := newVictim(t, through, killLease, rand.New(rand.NewPCG(seed, 0xFA117)))
	workers := make([]atomic.Pointer[app], 2)
	for i := range workers {
		workers[i].Store(v.start())
	}
	const rounds = 6 // instances of each scenario per wave
	for wave := 0; ; wave++ {
		began := time.Now()
		proxy.SetPlan(azuritetest.RandomPlan(seed+uint64(wave), 12, 2*time.Second))
		var numbers []int
		for i := range rounds {
			numbers = append(numbers, wave*rounds+i)
		}
		v.prepare(numbers...)
		total := 0
		order := make(chan *errand, len(v.errands))
		for _, i := range v.chance.Perm(len(v.errands)) {
			order <- v.errands[i]
			total += v.errands[i].steps
		}
		close(order)
		var begun sync.WaitGroup
		for i := range 4 {
			begun.Go(func() {
				for e := range order {
					for n := i; !e.accepted && n < i+10; n++ { // retries on both workers in turn
						e.begin(workers[n%len(workers)].Load())
						e.raise(workers[(n+1)%len(workers)].Load())
					}
				}
			})
		}
		const kills = 3
		for n := range kills {
			v.awaitSteps(total * (n + 1) / (kills + 2))
			w := &workers[v.chance.IntN(len(workers))]
			v.app = w.Load()
			v.kill()
			w.Store(v.start())
			if n == 1 {
				proxy.Stop()
				time.Sleep(3 * time.Second)
				comeBack(t, proxy)
			}
		}
		begun.Wait()
		v.app = workers[0].Load()
		v.insist()
		stormed := time.Since(began)
		v.complete()
		proxy.SetPlan(nil)
		completed := time.Since(began)
		v.check()
		t.Logf("wave %d: kills and an outage for %.0f s; all instances completed after %.0f s", wave, stormed.Seconds(), completed.Seconds())
		if time.Now().After(until) || t.Failed() {
			break
		}
	}
	if os.Getenv("DURABLE_FAULTS") != "" { // a duplicated message may be hidden for up to a minute
		v.awaitEmptyQueues()
	}
	v.report()
	t.Logf("%d instances; requests: %v", v.instances, proxy.Faults())
}
