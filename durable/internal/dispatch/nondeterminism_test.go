package dispatch_test

import (
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/google/go-cmp/cmp"
)

// sleepsFirst does not match the history of waitForGo after an event.
func sleepsFirst(x *replay.Execution, _ *string) (*string, error) {
	f := new(replay.Future)
	x.CreateTimer(f, x.Now().Add(time.Second))
	f.Await()
	return waitEvent(x, "go").Input, nil
}

// After a deployment whose code does not match its history, an instance is held back. It
// continues with matching code and receives the messages of the meantime.
func TestDifferentCode_HoldsAnInstanceBackUntilMatchingCodeIsDeployed(t *testing.T) {
	bubble(t, func(b *bench) {
		b.waits("i")
		var waiting dispatch.BlockedFunctions
		stop := b.work(one(sleepsFirst), func(c *dispatch.Config) { c.HoldNonDeterministic, c.Blocked = true, &waiting })
		b.send("i", &history.EventRaised{Name: "go", Input: encode("now")})
		time.Sleep(time.Hour)
		if s := b.state("i"); s.Status != history.Running {
			t.Fatalf("the instance is %v", s.Status)
		}
		want := []dispatch.BlockedFunction{
			{Kind: "orchestrator", Name: "O", Differs: true, Since: time.Now().Add(-time.Hour), Instances: []string{"i"}},
		}
		if diff := cmp.Diff(want, waiting.All(time.Now())); diff != "" {
			t.Errorf("waiting (-want +got):\n%s", diff)
		}
		if n := b.log.count("level=WARN"); n != 1 || b.log.count("a timer task") == 0 {
			t.Errorf("%d warnings, want one that names the difference:\n%s", n, b.log)
		}
		b.start("new", "O", nil)
		b.send("new", &history.EventRaised{Name: "go", Input: encode("then")})
		b.wantOutput("new", history.Completed, `"then"`) // other instances continue
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		b.work(one(waitForGo), func(c *dispatch.Config) { c.HoldNonDeterministic, c.Blocked = true, &waiting })
		b.wantOutput("i", history.Completed, `"now"`)
		if all := waiting.All(time.Now()); len(all) != 0 {
			t.Errorf("still listed: %v", all)
		}
	})
}

func TestDifferentCode_TerminateAndSuspendNeedNoCode(t *testing.T) {
	bubble(t, func(b *bench) {
		b.waits("ended")
		b.waits("suspended")
		stop := b.work(one(sleepsFirst), func(c *dispatch.Config) { c.HoldNonDeterministic = true })
		b.send("ended", &history.ExecutionTerminated{Reason: new("enough")})
		b.wantOutput("ended", history.Terminated, "enough")
		b.send("suspended", &history.ExecutionSuspended{})
		time.Sleep(time.Hour)
		if s := b.state("suspended"); s.Status != history.Suspended {
			t.Errorf("the instance is %v", s.Status)
		}
		b.send("suspended", &history.ExecutionResumed{})
		b.send("suspended", &history.EventRaised{Name: "go", Input: encode("now")})
		time.Sleep(time.Hour)
		if s := b.state("suspended"); s.Status.IsTerminal() {
			t.Errorf("the instance is %v without matching code", s.Status)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		b.work(one(waitForGo))
		b.wantOutput("suspended", history.Completed, `"now"`)
	})
}

func TestDifferentCode_FailsAnInstanceByDefault(t *testing.T) {
	bubble(t, func(b *bench) {
		b.waits("i")
		b.work(one(sleepsFirst))
		b.send("i", &history.EventRaised{Name: "go", Input: encode("now")})
		if s := b.end("i"); s.Status != history.Failed {
			t.Errorf("the instance is %v", s.Status)
		}
	})
}
