package simulated_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
)

// interruptedID is the ID of the instance whose starter dies. The rows of the tests' other
// instances come before its row.
const interruptedID = "z"

// withInterruptedStart calls f in a bubble with a hub without a worker. The hub has scheduled
// instances, and an instance whose starter died after it inserted the row.
func withInterruptedStart(t *testing.T, scheduled int, f func(fl *fleet, client *durable.Client)) {
	t.Helper()
	dieAfterRow := func(r azsim.Request) azsim.Fault {
		if r.Worker == "dying" && r.Operation == "InsertEntity" && strings.Contains(string(r.Body), `"PartitionKey":"`+interruptedID+`"`) {
			return azsim.KillAfter
		}
		return azsim.None
	}
	withStarts(t, dieAfterRow, func(fl *fleet, _, client *durable.Client) {
		t := fl.T
		for i := range scheduled {
			id := durable.InstanceID(fmt.Sprintf("a-%03d", i))
			if _, err := client.StartByName(t.Context(), "HelloSequence", nil, id, durable.StartAt(time.Now().Add(24*time.Hour))); err != nil {
				t.Fatal(err)
			}
		}
		fl.leave("one")
		starter := durable.NewClient(fl.join("dying", nil), nil)
		warm, err := starter.StartByName(t.Context(), "HelloSequence", nil, durable.InstanceID("warm"))
		if err != nil {
			t.Fatal(err)
		}
		fl.awaitDone(client, warm)
		if _, err := starter.StartByName(t.Context(), "HelloSequence", nil, durable.InstanceID(interruptedID)); err == nil {
			t.Fatal("the starter did not die")
		}
		fl.leave("dying")
		if n := messagesTo(fl, interruptedID); n != 0 {
			t.Fatalf("%d start messages are in the queue, want none", n)
		}
		f(fl, client)
	})
}

// messagesTo counts the messages in the control queue that name an instance.
func messagesTo(fl *fleet, id string) (n int) {
	for _, m := range fl.account.Messages("again-control-00") {
		if strings.Contains(m.Text, `"InstanceId":"`+id+`"`) {
			n++
		}
	}
	return n
}

// isCompleted reports whether the row of an instance has the status Completed.
func isCompleted(fl *fleet, id string) bool {
	row, _ := fl.account.Row("AgainInstances", id, "")
	return row.Text("RuntimeStatus") == history.Completed.String()
}

// startWithin is the time limit for an interrupted start to complete after a worker has started.
const startWithin = 90 * time.Second

func TestInterruptedStart_RunsSoonAfterAWorkerStarts(t *testing.T) {
	for _, scheduled := range []int{0, 100, 1500} {
		if scheduled > 100 && usual().sample > 1 {
			continue
		}
		t.Run(fmt.Sprintf("%d scheduled instances", scheduled), func(t *testing.T) {
			withInterruptedStart(t, scheduled, func(fl *fleet, _ *durable.Client) {
				fl.join("one", nil)
				time.Sleep(startWithin)
				if !isCompleted(fl, interruptedID) {
					t.Error("the interrupted start has not run")
				}
			})
		})
	}
}

// Workers that stop before any background interval has passed also resend the start.
func TestInterruptedStart_RunsOnShortLivedWorkers(t *testing.T) {
	for _, life := range []time.Duration{4 * time.Second, 20 * time.Second, 28 * time.Second} {
		t.Run(life.String(), func(t *testing.T) {
			withInterruptedStart(t, 100, func(fl *fleet, _ *durable.Client) {
				for began := time.Now(); time.Since(began) < startWithin; {
					fl.join("one", nil)
					time.Sleep(life)
					fl.leave("one")
				}
				if !isCompleted(fl, interruptedID) {
					t.Error("the interrupted start has not run")
				}
				fl.join("one", nil)
			})
		})
	}
}

// A start that is sent again runs the instance once.
func TestInterruptedStart_RunsOnce(t *testing.T) {
	withInterruptedStart(t, 0, func(fl *fleet, client *durable.Client) {
		fl.join("one", nil)
		time.Sleep(10 * time.Minute)
		if !isCompleted(fl, interruptedID) {
			t.Error("the interrupted start has not run")
		}
		starts := 0
		for _, e := range fl.account.Log() {
			if e.Worker == "one" && e.Operation == "PutMessage" && strings.Contains(string(e.Body), `ExecutionStartedEvent`) && strings.Contains(string(e.Body), `&#34;`+interruptedID+`&#34;`) {
				starts++
			}
		}
		if starts > 1 {
			t.Errorf("its start was sent %d times, want at most 1", starts)
		}
		if _, err := client.Status(fl.Context(), interruptedID, durable.Fetch{}); errors.Is(err, durable.ErrInstanceNotFound) {
			t.Error(err)
		}
	})
}
