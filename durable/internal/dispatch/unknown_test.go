package dispatch_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/crashes"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/google/go-cmp/cmp"
)

// noFunctions contains no function.
var noFunctions = functions{}

// mustNotRun is an orchestrator that fails the test if it runs.
func (b *bench) mustNotRun(*replay.Execution, *string) (*string, error) {
	b.Error("the orchestrator ran")
	return nil, nil
}

// waits runs an instance until it waits for an event, and stops the worker.
func (b *bench) waits(id string) {
	b.Helper()
	stop := b.work(one(waitForGo))
	b.start(id, "O", nil)
	time.Sleep(time.Second)
	if err := stop(); err != nil {
		b.Fatal(err)
	}
}

func waitForGo(x *replay.Execution, _ *string) (*string, error) {
	x.SetCustomStatus(new(`"waits"`))
	return waitEvent(x, "go").Input, nil
}

// wantCustomStatus compares the custom status of an instance. An episode without code must not
// erase it.
func (b *bench) wantCustomStatus(id, want string) {
	b.Helper()
	got := "none"
	if s := b.state(id).CustomStatus; s != nil {
		got = *s
	}
	if got != want {
		b.Errorf("the custom status of %s is %s, want %s", id, got, want)
	}
}

func TestTerminate_BeforeTheFirstEpisodeRunsNoCode(t *testing.T) {
	bubble(t, func(b *bench) {
		b.start("i", "O", nil)
		b.send("i", &history.EventRaised{Name: "go", Input: encode("now")})
		b.send("i", &history.ExecutionTerminated{Reason: new("enough")})
		b.work(one(b.mustNotRun))
		b.wantOutput("i", history.Terminated, "enough")
		want := "OrchestratorStarted ExecutionStarted EventRaised ExecutionTerminated ExecutionCompleted OrchestratorCompleted"
		if got := b.types("i"); got != want {
			t.Errorf("history is %s, want %s", got, want)
		}
		if n := b.Pending(); n != 0 {
			t.Errorf("%d messages are left", n)
		}
	})
}

func TestTerminate_BeforeTheFirstEpisodeNotifiesTheParent(t *testing.T) {
	bubble(t, func(b *bench) {
		parent := history.OrchestrationInstance{InstanceID: "p", ExecutionID: "execution of p"}
		stop := b.work(one(func(x *replay.Execution, _ *string) (*string, error) {
			f := new(replay.Future)
			x.CreateSubOrchestration(f, "Unknown", "c", nil)
			return result(f)
		}))
		b.startEvent(&history.ExecutionStarted{Header: history.NewHeader(time.Now()), Instance: parent, Name: "O"})
		time.Sleep(time.Minute)
		b.send("c", &history.ExecutionTerminated{Reason: new("enough")})
		if s := b.end("c"); s.Status != history.Terminated {
			t.Errorf("the child is %v", s.Status)
		}
		if s := b.end("p"); s.Status != history.Failed {
			t.Errorf("the parent is %v", s.Status)
		}
		_ = stop()
	})
}

func TestUnknownFunction_TerminateNeedsNoCode(t *testing.T) {
	bubble(t, func(b *bench) {
		b.waits("running")
		b.work(noFunctions)
		b.start("new", "O", nil)
		time.Sleep(time.Minute)
		for _, id := range []string{"running", "new"} {
			b.send(id, &history.ExecutionTerminated{Reason: new("enough")})
			b.wantOutput(id, history.Terminated, "enough")
		}
		b.wantCustomStatus("running", `"waits"`)
		time.Sleep(time.Hour)
		if n := b.Pending(); n != 0 {
			t.Errorf("%d messages are left", n)
		}
	})
}

// A worker without the function records events. A worker with the function replays them like
// its own.
func TestUnknownFunction_SuspendNeedsNoCode(t *testing.T) {
	bubble(t, func(b *bench) {
		b.waits("running")
		stop := b.work(noFunctions)
		b.start("new", "O", nil)
		time.Sleep(time.Minute)
		for _, id := range []string{"running", "new"} {
			b.send(id, &history.ExecutionSuspended{})
			time.Sleep(time.Hour)
			if s := b.state(id); s.Status != history.Suspended {
				t.Errorf("instance %s is %v", id, s.Status)
			}
			b.send(id, &history.EventRaised{Name: "go", Input: encode("now")})
			time.Sleep(time.Hour)
			b.send(id, &history.ExecutionResumed{})
			time.Sleep(time.Hour)
			if s := b.state(id); s.Status.IsTerminal() {
				t.Errorf("instance %s is %v without code", id, s.Status)
			}
		}
		b.wantCustomStatus("running", `"waits"`)
		_ = stop()
		b.work(one(waitForGo))
		b.wantOutput("running", history.Completed, `"now"`)
		b.wantOutput("new", history.Completed, `"now"`)
	})
}

// The results of steps are stored in a checkpoint of their own, before the messages of the episode. This
// checkpoint keeps the custom status, too.
func TestUnknownFunction_AStepThatWasInterruptedKeepsTheCustomStatus(t *testing.T) {
	bubble(t, func(b *bench) {
		stop := b.work(functions{orchestrators: map[string]replay.Code{
			"Parent": func(x *replay.Execution, _ *string) (*string, error) {
				f := new(replay.Future)
				x.CreateSubOrchestration(f, "Child", "child", nil)
				f.Await()
				return nil, nil
			},
			"Child": func(x *replay.Execution, _ *string) (*string, error) {
				x.SetCustomStatus(new(`"waits"`))
				step(x, "S", returns(new(atomic.Int64), time.Hour, "never"), atMostOnce).Await()
				return nil, nil
			},
		}})
		b.start("parent", "Parent", nil)
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		b.wantCustomStatus("child", `"waits"`)
		b.work(noFunctions)
		b.send("child", &history.ExecutionTerminated{Reason: new("enough")})
		b.wantOutput("child", history.Terminated, "enough")
		b.wantCustomStatus("child", `"waits"`)
	})
}

// The locks in the history of such an instance must be released.
func TestUnknownFunction_AnInstanceThatEndsWithoutCodeReleasesItsLocks(t *testing.T) {
	ends := map[string]func(*dispatch.Config){
		"terminated": func(*dispatch.Config) {},
		"failed":     func(c *dispatch.Config) { c.FailUnknownAfter, c.FailUnknownStarted = -1, true },
		"failed for its version": func(c *dispatch.Config) {
			c.CheckVersion, c.FailVersionMismatch = func(string) error { return errors.New("too old") }, true
		},
	}
	for name, change := range ends {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				stop := b.work(functions{entities: entityFunctions.entities, orchestrators: map[string]replay.Code{
					"Lock": func(x *replay.Execution, _ *string) (*string, error) {
						lockEntities(x, counterID("a"), counterID("b"))
						return waitEvent(x, "go").Input, nil
					},
				}})
				b.start("i", "Lock", nil)
				time.Sleep(time.Minute)
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				b.work(functions{entities: entityFunctions.entities}, change)
				if name == "terminated" {
					b.send("i", &history.ExecutionTerminated{Reason: new("enough")})
				} else {
					b.send("i", &history.EventRaised{Name: "go"})
				}
				b.end("i")
				for _, key := range []string{"a", "b"} {
					b.signal(counterID(key), "add", 1, time.Time{})
					time.Sleep(time.Second)
					b.wantState(counterID(key), "1")
				}
			})
		})
	}
}

func TestUnknownFunction_FailsNewInstancesAfterTheTimeout(t *testing.T) {
	for name, after := range map[string]time.Duration{"immediately": -1, "in ten minutes": 10 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				b.waits("running")
				began := time.Now()
				b.work(noFunctions, func(c *dispatch.Config) { c.FailUnknownAfter = after })
				b.start("new", "O", nil)
				b.wantOutput("new", history.Failed, `FunctionNotFound: this worker has no orchestrator named "O"`)
				if took := time.Since(began); took < after || took > after+time.Minute {
					t.Errorf("it took %v", took)
				}
				b.send("running", &history.EventRaised{Name: "go"})
				time.Sleep(24 * time.Hour)
				if s := b.state("running"); s.Status != history.Running {
					t.Errorf("the started instance is %v", s.Status)
				}
			})
		})
	}
}

// An activity that is set aside does not fail. Its delays grow.
func TestUnknownFunction_DoesNotHurryActivitiesThatAreSetAside(t *testing.T) {
	ledger := setAside(t, crashes.WorkName("activity", "Hello", "execution of i", 0, "i"))
	bubble(t, func(b *bench) {
		b.work(helloFunctions, func(c *dispatch.Config) {
			c.FailUnknownAfter, c.FailUnknownStarted, c.Crashes = time.Minute, true, ledger
		})
		b.start("i", "HelloSeq", nil)
		time.Sleep(2 * time.Hour)
		if n := b.log.count("activity is held back"); n < 2 || n > 25 {
			t.Errorf("the activity was delivered %d times", n)
		}
	})
}

func TestUnknownFunction_FailsStartedInstancesIfConfigured(t *testing.T) {
	bubble(t, func(b *bench) {
		b.waits("running")
		b.work(noFunctions, func(c *dispatch.Config) { c.FailUnknownAfter, c.FailUnknownStarted = time.Minute, true })
		time.Sleep(time.Hour)
		b.send("running", &history.EventRaised{Name: "go"})
		b.wantOutput("running", history.Failed, `FunctionNotFound: this worker has no orchestrator named "O"`)
	})
}

func TestUnknownFunction_ActivitiesOfEndedInstancesAreDiscarded(t *testing.T) {
	bubble(t, func(b *bench) {
		b.work(functions{orchestrators: map[string]replay.Code{"O": func(x *replay.Execution, _ *string) (*string, error) {
			return result(begin(x, "Unknown", "x"))
		}}})
		for _, id := range []string{"ends", "waits"} {
			b.start(id, "O", nil)
		}
		time.Sleep(time.Minute)
		b.send("ends", &history.ExecutionTerminated{Reason: new("enough")})
		b.wantOutput("ends", history.Terminated, "enough")
		time.Sleep(24 * time.Hour)
		if n := b.log.count("activity is discarded"); n != 1 {
			t.Errorf("%d activities were discarded, want only the activity of the ended instance", n)
		}
		if s := b.state("waits"); s.Status != history.Running {
			t.Errorf("the waiting instance is %v", s.Status)
		}
	})
}

func TestUnknownFunction_FailsAnActivityIfConfigured(t *testing.T) {
	bubble(t, func(b *bench) {
		b.work(functions{orchestrators: map[string]replay.Code{"O": func(x *replay.Execution, _ *string) (*string, error) {
			return result(begin(x, "Unknown", "x"))
		}}}, func(c *dispatch.Config) { c.FailUnknownAfter, c.FailUnknownStarted = time.Minute, true })
		b.start("i", "O", nil)
		if s := b.end("i"); s.Status != history.Failed || !strings.Contains(*s.Output, "Unknown") {
			t.Errorf("the instance is %v with %s", s.Status, *s.Output)
		}
	})
}

func TestUnknownFunction_CallsOfAnEntityThatDoesNotExistFail(t *testing.T) {
	bubble(t, func(b *bench) {
		stop := b.work(entityFunctions)
		b.signal(counterID("there"), "add", 1, time.Time{})
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		b.work(functions{orchestrators: entityFunctions.orchestrators}, func(c *dispatch.Config) { c.FailUnknownAfter = -1 })
		b.start("i", "Call", "get")
		if s := b.end("i"); s.Status != history.Failed || !strings.Contains(*s.Output, "counter") {
			t.Errorf("the instance is %v with %s", s.Status, *s.Output)
		}
		b.signal(counterID("there"), "add", 1, time.Time{})
		time.Sleep(time.Hour)
		b.wantState(counterID("there"), "1")
		if b.log.count("entity is held back") == 0 {
			t.Error("the existing entity is not held back")
		}
	})
}

// They fail neither at the end of a long delay nor, for scheduled operations, before their
// time.
func TestUnknownFunction_OperationsOfAnEntityFailAfterTheTimeout(t *testing.T) {
	const after, hour = 10 * time.Minute, time.Hour
	bubble(t, func(b *bench) {
		b.work(functions{orchestrators: entityFunctions.orchestrators}, func(c *dispatch.Config) { c.FailUnknownAfter = after })
		began := time.Now()
		b.start("i", "Call", "get")
		if s := b.end("i"); s.Status != history.Failed {
			t.Errorf("the caller is %v", s.Status)
		}
		if took := time.Since(began); took < after || took > after+time.Minute {
			t.Errorf("the call failed after %v", took)
		}
		began = time.Now()
		b.signal(counterID("b"), "add", 1, began.Add(hour))
		for _, tt := range []struct {
			wait  time.Duration
			fails int
		}{{hour + after - time.Minute, 1}, {2 * time.Minute, 2}} {
			time.Sleep(tt.wait)
			if n := b.log.count("operations of an entity fail"); n != tt.fails {
				t.Errorf("after %v the log has %d failed operations, want %d", time.Since(began), n, tt.fails)
			}
		}
	})
}

// A full record of waiting instances has room again for each instance that it removes or forgets.
func TestBlockedFunctions_HaveALimit(t *testing.T) {
	var waiting dispatch.BlockedFunctions
	fill := func(now time.Time) (added int) {
		for i := range dispatch.MaxBlocked + 5 {
			if waiting.Add(fmt.Sprint(now.Unix(), i), now) {
				added++
			}
		}
		return added
	}
	if n := fill(noon); n != dispatch.MaxBlocked || fill(noon) != 0 {
		t.Errorf("%d instances were added, want %d, and none again", n, dispatch.MaxBlocked)
	}
	for range 2 { // an instance without a record makes no room
		waiting.Remove(fmt.Sprint(noon.Unix(), 7))
	}
	if later := noon.Add(time.Minute); !waiting.Add("a", later) || waiting.Add("b", later) {
		t.Error("a removed instance did not make room for one other instance")
	}
	if n := fill(noon.Add(dispatch.ForgetBlocked + time.Second)); n != dispatch.MaxBlocked-1 {
		t.Errorf("%d instances were added after the others were forgotten, want %d", n, dispatch.MaxBlocked-1)
	}
}

func TestUnknownFunction_IsLoggedOnceAndListedWhileWorkWaits(t *testing.T) {
	bubble(t, func(b *bench) {
		var waiting dispatch.BlockedFunctions
		b.work(noFunctions, func(c *dispatch.Config) { c.Blocked = &waiting })
		for _, id := range []string{"j", "i"} {
			b.start(id, "O", nil)
		}
		b.signal(counterID("a"), "add", 1, time.Time{})
		time.Sleep(time.Hour)
		want := []dispatch.BlockedFunction{
			{Kind: "entity", Name: "counter", Since: time.Now().Add(-time.Hour), Instances: []string{"@counter@a"}},
			{Kind: "orchestrator", Name: "O", Since: time.Now().Add(-time.Hour), Instances: []string{"i", "j"}},
		}
		if diff := cmp.Diff(want, waiting.All(time.Now())); diff != "" {
			t.Errorf("waiting (-want +got):\n%s", diff)
		}
		if n := b.log.count("level=WARN"); n != 3 {
			t.Errorf("%d warnings, want 3:\n%s", n, b.log)
		}
		for _, id := range []string{"j", "i"} {
			b.send(id, &history.ExecutionTerminated{})
			b.end(id)
		}
		if all := waiting.All(time.Now()); len(all) != 1 {
			t.Errorf("still listed: %v", all)
		}
		if all := waiting.All(time.Now().Add(time.Hour)); len(all) != 0 {
			t.Errorf("listed although not redelivered: %v", all)
		}
	})
}
