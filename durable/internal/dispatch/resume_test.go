package dispatch_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
)

// After a crash, the log shows which instances this process resumed, and only those.
func TestResume_OfAnInstanceOfAnotherProcessIsLogged(t *testing.T) {
	const said = `msg="resuming instance that another process was running" instanceId=`
	bubble(t, func(b *bench) {
		slow := functions{orchestrators: journeyFunctions.orchestrators, activities: map[string]activity{
			"Hello": func(ctx context.Context, input *string) (*string, error) {
				time.Sleep(time.Second)
				return sayHello(ctx, input)
			},
		}}
		first := b.Hub.Worker
		b.workOn(first, slow)
		b.start("left", "Journey", 1)
		time.Sleep(500 * time.Millisecond) // its first activity is running
		if log := b.log.String(); strings.Contains(log, said) {
			t.Errorf("the log has a resumption before the process died:\n%s", log)
		}
		first.Kill()
		b.workOn(b.NewWorker(), slow)
		b.start("new", "Journey", 1)

		b.wantOutput("left", history.Completed, journeysEnd)
		b.wantOutput("new", history.Completed, journeysEnd)

		log := b.log.String()
		if n := strings.Count(log, said+"left"); n != 1 {
			t.Errorf("the resumption is logged %d times, want once:\n%s", n, log)
		}
		if want := "name=Journey events=4 waitsFor=1"; !strings.Contains(log, want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
		if strings.Contains(log, said+"new") {
			t.Errorf("a new instance is logged as resumed:\n%s", log)
		}
	})
}

func TestOpenActions_DoNotIncludeChildrenThatReportNoResult(t *testing.T) {
	past := []history.Event{
		&history.SubOrchestrationInstanceCreated{Header: action(0), InstanceID: "a", Tags: map[string]string{history.FireAndForget: ""}},
		&history.SubOrchestrationInstanceCreated{Header: action(1), InstanceID: "b"},
		&history.TaskScheduled{Header: action(2)},
		&history.TaskCompleted{TaskScheduledID: 2},
		&history.TimerCreated{Header: action(3)},
	}
	if n := dispatch.OpenActions(past); n != 2 {
		t.Errorf("%d open actions, want 2: a child and a timer", n)
	}
}

// The calls of a poll leave no events, and each of them wakes the instance.
func TestResume_OfASleepingPollIsNotLogged(t *testing.T) {
	bubble(t, func(b *bench) {
		var l pollLog
		first, fns := b.Hub.Worker, polling(&l, 5, time.Hour)
		b.workOn(first, fns)
		b.start("i", "O", nil)
		time.Sleep(90 * time.Minute)
		first.Kill()
		b.workOn(b.NewWorker(), fns)
		b.wantOutput("i", history.Completed, "done")
		l.want(t, "1@0s 2@1h0m0s 3@2h0m0s 4@3h0m0s 5@4h0m0s")
		if log := b.log.String(); strings.Contains(log, "resuming instance") {
			t.Errorf("the log has a resumption:\n%s", log)
		}
	})
}
