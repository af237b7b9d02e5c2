package simulated_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/chance"
)

// congestedBacklog is the number of instances that start before the queues become slow.
const congestedBacklog = 300

// isReceive reports whether a request returned messages.
func isReceive(e azsim.Entry) bool {
	return e.Operation == "GetMessages" && bytes.Contains(e.Answer, []byte("<MessageId>"))
}

// runCongested lets two workers complete a backlog of starts while the queues accept few requests
// per second. If once is true, the limit starts after the workers have received messages.
// runCongested returns the successful queue requests since the limit started.
func runCongested(t *testing.T, perSecond float64, once bool) (log []azsim.Entry) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		limit := &azsim.RateLimit{Service: azsim.QueueService, PerSecond: perSecond}
		var limited atomic.Bool
		account := azsim.New(azsim.Config{Seed: 5, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond, Decide: func(r azsim.Request) azsim.Fault {
			if !limited.Load() {
				return azsim.None
			}
			return limit.Decide(r)
		}})
		defer account.End()
		registry := durable.NewRegistry(durable.Orchestrator("HelloSequence", helloSequence), durable.Activity("SayHello", sayHello))
		client := durable.NewClient(openWith(t, "client", account, account.Worker("client")), registry)
		for i := range congestedBacklog {
			if _, err := durable.Start(t.Context(), client, helloSequence, durable.Void{}, durable.InstanceID(fmt.Sprint("i-", i))); err != nil {
				t.Fatal(err)
			}
		}
		limited.Store(!once)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for _, name := range []string{"w1", "w2"} {
			hub := openWith(t, name, account, account.Worker(name))
			running.Go(func() {
				_ = durable.NewWorker(hub, registry, durable.Config{Logger: slog.New(slog.DiscardHandler)}).Run(chance.With(ctx, account.Chance(name)))
			})
		}
		received := func() (n int) {
			for _, e := range account.Log() {
				if isReceive(e) {
					n++
				}
			}
			return n
		}
		for once && received() < 8 {
			time.Sleep(time.Millisecond)
		}
		limited.Store(true)
		before, began, open := len(account.Log()), time.Now(), congestedBacklog
		for ; open > 0 && time.Since(began) < 2*time.Hour; time.Sleep(10 * time.Second) {
			open = 0
			for _, row := range account.Rows("SimInstances") {
				if row.Text("RuntimeStatus") != history.Completed.String() {
					open++
				}
			}
		}
		if open > 0 {
			t.Errorf("%d of %d instances have not completed", open, congestedBacklog)
		}
		for _, e := range account.Log()[before:] {
			if e.Service == azsim.QueueService && e.Status > 0 && e.Status < 300 {
				log = append(log, e)
			}
		}
		allowed, refused := limit.Counts()
		t.Logf("completed after %v, %d requests allowed, %d refused", time.Since(began), allowed, refused)
		stop()
		running.Wait()
	})
	return log
}

// Workers receive only as many messages as they can renew and finish. If they hold more, they do
// not renew the surplus.
func TestCongestion_ABacklogIsCompletedWithFewRenewals(t *testing.T) {
	for _, tt := range []struct {
		perSecond float64
		once      bool
	}{{3, false}, {5, false}, {3, true}, {5, true}} {
		t.Run(fmt.Sprintf("%v requests per second, once received %v", tt.perSecond, tt.once), func(t *testing.T) {
			renewals, most := 0, 0
			log := runCongested(t, tt.perSecond, tt.once)
			for _, e := range log {
				if e.Operation == "UpdateMessage" {
					renewals++
				}
				for n := most + 1; n < 20; n++ {
					if e.Operation == "GetMessages" && bytes.Contains(e.Answer, fmt.Appendf(nil, "<DequeueCount>%d<", n)) {
						most = n
					}
				}
			}
			t.Logf("%d of %d queue requests are renewals; a message was received %d times", renewals, len(log), most)
			if renewals > len(log)/20 {
				t.Errorf("%d of %d queue requests are renewals; want at most one in 20", renewals, len(log))
			}
			if most > 3 {
				t.Errorf("a message was received %d times, want at most three times", most)
			}
		})
	}
}
