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
	"github.com/durablefunctions-go/durablefunctions/handler/processtest"
)

// A request of a start is held up while the caller goes away or the process is killed.
// What was begun runs, or nothing is there of it, whether somebody asks for it again or
// not; and what somebody was told of stays. (That a worker sends starts again that are
// pending without a message is not waited for here: it takes minutes.)
func TestFaults_AStartThatIsCutOffRunsOrLeavesNothing(t *testing.T) {
	t.Parallel()
	const held = 3 * time.Second
	for _, test := range []struct {
		name    string
		request string // as azuritetest.Call has it, after the hub's name
		fate    azuritetest.Fate
	}{
		{"the answer to the row's insert", "table InsertEntity %sInstances", azuritetest.Fate{Hold: held}},
		{"the row's insert", "table InsertEntity %sInstances", azuritetest.Fate{Late: held}},
		{"the answer to the message's insert", "queue PutMessage %s-control", azuritetest.Fate{Hold: held}},
		{"the message's insert", "queue PutMessage %s-control", azuritetest.Fate{Late: held}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if test.name != "the message's insert" {
				processtest.LeaveToFull(t)
			}
			proxy, through := newProxy(t, azuritetest.Start(t))
			v := newVictim(t, through, killLease, rand.New(rand.NewPCG(1, 1)))
			v.app = v.start()
			walk := map[string]any{"steps": 3}
			const want = "[1,4,9]"
			v.app.completed(v.app.start("Steps", walk).StatusQueryGetURI, time.Minute, want) // the hub exists

			hub := v.hub
			if strings.HasPrefix(test.request, "queue") {
				hub = strings.ToLower(hub)
				walk["note"] = strings.Repeat("x", 64<<10) // small starts of this process are in no queue
			}
			request := fmt.Sprintf(test.request, hub)
			start := func(id string) string { return "/api/durabletask/orchestrators/Steps/" + id }
			// hold makes the next request meet its fate, and returns what tells that it did.
			hold := func() <-chan struct{} {
				met := make(chan struct{})
				var once sync.Once
				proxy.Follow(func(call azuritetest.Call) (fate azuritetest.Fate) {
					if strings.HasPrefix(call.String(), request) {
						once.Do(func() { fate = test.fate; close(met) })
					}
					return fate
				})
				return met
			}
			again := func(id string) {
				t.Helper()
				proxy.Follow(nil)
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
				case <-time.After(time.Minute):
					t.Fatalf("there was no request %s", request)
				}
			}

			hold() // a machine that is very slow does not come that far within the second
			impatient, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if got, err := v.app.tryWithin(impatient, http.MethodPost, start("timeout"), walk); err == nil {
				t.Errorf("a start was answered with %d while it was held up", got.status)
			}
			again("timeout")

			hold()
			front := azuritetest.NewProxy()
			t.Cleanup(front.Leave)
			front.Follow(func(azuritetest.Call) azuritetest.Fate {
				return azuritetest.Fate{Fault: azuritetest.Abandon, Hold: time.Second}
			})
			url, err := front.Service("app", v.app.url)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := v.app.try(http.MethodPost, url+start("closed"), walk); err == nil {
				t.Errorf("a start was answered with %d on a connection that was to be closed", got.status)
			}
			again("closed")

			for _, id := range []string{"killed-and-forgotten", "killed"} {
				met := hold()
				begun := make(chan struct{})
				go func(a *app) { // ends when the process is dead
					defer close(begun)
					_, _ = a.try(http.MethodPost, start(id), walk)
				}(v.app)
				wait(met)
				if test.fate.Hold > 0 { // a good part of which is left when it has arrived
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
			left := map[any]any{} // a message without a row is dropped in its time
			eventually(t, time.Minute, "the end of all that there is", func() bool {
				done := true
				for _, row := range queryRows(t, v.connection, v.hub+"Instances", "") {
					left[row["PartitionKey"]] = row["RuntimeStatus"]
					done = done && row["RuntimeStatus"] == "Completed"
				}
				return done
			})
			t.Logf("in the end there is %v", left)
		})
	}
}

// Two workers reach their storage by way of a proxy that drops, doubles, delays and cuts
// requests, and is away for a while. Again and again one of them is killed. All the same
// everything ends as it must, and nothing is done twice.
//
// DURABLE_FAULTS says for how long, such as 20m, this goes on, in waves; the default is
// one wave. DURABLE_FAULTS_SEED chooses other faults.
func TestFaults_TwoWorkersCarryEverythingOut(t *testing.T) {
	processtest.LeaveToFull(t)
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
	const rounds = 6 // of all deeds, in a wave
	for wave := 0; ; wave++ {
		began := time.Now()
		proxy.Follow(azuritetest.Weather(seed+uint64(wave), 12, 2*time.Second))
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
					for n := i; !e.accepted && n < i+10; n++ { // by turns, as a client that insists
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
				proxy.Leave()
				time.Sleep(3 * time.Second)
				comeBack(t, proxy)
			}
		}
		begun.Wait()
		v.app = workers[0].Load()
		v.insist()
		stormed := time.Since(began)
		v.complete()
		proxy.Follow(nil)
		completed := time.Since(began)
		v.check()
		t.Logf("wave %d: kills and an outage for %.0f s, all complete after %.0f s", wave, stormed.Seconds(), completed.Seconds())
		if time.Now().After(until) || t.Failed() {
			break
		}
	}
	if os.Getenv("DURABLE_FAULTS") != "" { // what came twice is believed in for up to a minute
		v.awaitEmptyQueues()
	}
	v.report()
	t.Logf("%d instances; requests: %v", v.instances, proxy.Faults())
}
