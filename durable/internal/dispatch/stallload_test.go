package dispatch_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

const helloResult = `["Hello Tokyo!","Hello Seattle!","Hello London!"]`

func TestStall_OfFiveHundredInstancesLetsOthersContinue(t *testing.T) {
	for _, slots := range []int{64, 1000} {
		t.Run(fmt.Sprint(slots, " slots"), func(t *testing.T) {
			bubble(t, func(b *bench) {
				k := newBlocker()
				defer close(k.released)
				var waiting dispatch.BlockedFunctions
				stop := b.work(k.functions(blocks["a channel"]), func(c *dispatch.Config) {
					c.MaxConcurrentOrchestrators, c.Blocked = slots, &waiting
				})
				for i := range 500 {
					b.start(fmt.Sprint("blocked ", i), "O", nil)
				}
				for i := range 60 {
					id := fmt.Sprint("hello ", i)
					b.start(id, "HelloSeq", nil)
					time.Sleep(time.Second)
					if slots > 500 && b.state(id).Status != history.Completed {
						t.Errorf("%s is %v after a second", id, b.state(id).Status)
					}
				}
				for i := range 60 {
					b.wantOutput(fmt.Sprint("hello ", i), history.Completed, helloResult)
				}
				time.Sleep(time.Hour)
				if all := waiting.All(time.Now()); len(all) != 1 || len(all[0].Instances) != 500 {
					t.Errorf("%d functions are held back, want 1: %v", len(all), all)
				}
				if n := k.runs.Load(); n > int64(min(slots+2, 500)) { // two stalls free slots before the third stops the function
					t.Errorf("the code ran %d times, with %d slots", n, slots)
				}
				stacks := 0
				for line := range strings.Lines(b.log.String()) {
					if strings.Contains(line, "stack=") {
						stacks++
					}
				}
				if stacks != 1 {
					t.Errorf("the log has %d stacks, want 1", stacks)
				}
				for i := range 500 {
					b.send(fmt.Sprint("blocked ", i), &history.ExecutionTerminated{Reason: new("enough")})
				}
				time.Sleep(time.Second)
				for i := range 500 {
					if s := b.state(fmt.Sprint("blocked ", i)); s.Status != history.Terminated {
						t.Fatalf("%s is %v a second after it was terminated", s.Instance.InstanceID, s.Status)
					}
				}
				time.Sleep(time.Hour) // the results of their activities are redelivered and discarded
				if err := stop(); err != nil {
					t.Error(err)
				}
				b.wantNothingLeft()
			})
		})
	}
}

// The replay takes 25 seconds of the bubble's time, which is more than the limit.
func TestBound_WaitsForTheReplayOfAHundredThousandEvents(t *testing.T) {
	bubble(t, func(*bench) {
		const activities = 25_000
		start, now := startOf("i"), time.Now()
		events := []history.Event{&history.OrchestratorStarted{Header: history.NewHeader(now)}, start}
		for i := range activities {
			if i > 0 {
				events = append(events, &history.OrchestratorStarted{Header: history.NewHeader(now)}, &history.TaskCompleted{TaskScheduledID: i - 1})
			}
			events = append(events, &history.TaskScheduled{Header: history.Header{EventID: i}, Name: "Hello"}, &history.OrchestratorCompleted{Header: history.NewHeader(now)})
		}
		done := 0
		err := dispatch.RunWithLimit(start, func(x *replay.Execution, _ *string) (*string, error) {
			for range activities {
				time.Sleep(time.Millisecond)
				_, _ = callActivity(x, "Hello", nil)
				done++
			}
			return nil, nil
		}, func(code replay.Code) {
			x := replay.New(start.Instance, code)
			defer x.Close()
			x.Episode(events, nil)
			if d := x.Divergence(); d != nil {
				t.Error(d)
			}
		})
		if took := time.Since(now); err != nil || done != activities-1 || took < 2*dispatch.ReplayLimit {
			t.Errorf("after %d events, %d activities and %v: %v", len(events), done, took, err)
		}
	})
}

func BenchmarkTurn(b *testing.B) {
	turns := dispatch.NewTurns()
	episode := func() {
		start := startOf("i")
		x := replay.New(start.Instance, helloSequence)
		x.Episode(nil, []history.Event{&history.OrchestratorStarted{}, start})
		x.Close()
	}
	for _, way := range []struct {
		name string
		run  func(func())
	}{{"empty on a goroutine of its own", turns.Run}, {"empty on the goroutine of the session", turns.RunHere}} {
		b.Run(way.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				way.run(func() {})
			}
		})
		b.Run(strings.Replace(way.name, "empty", "episode", 1), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				way.run(episode)
			}
		})
	}
}
