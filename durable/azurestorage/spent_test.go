package azurestorage

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// The history of the new execution does not tell that the old one had the event.
func TestControlQueue_AnEventThatCouldNotBeDeletedDoesNotReachTheNextExecution(t *testing.T) {
	t.Parallel()
	var stuck atomic.Bool
	cfg := testConfig(t)
	cfg.LeaseInterval = 2 * time.Second // and so the messages' lock
	cfg.Transport = faulty(t, func(c azuritetest.Call) fault {
		if c.Name == "DeleteMessage" && stuck.Load() {
			return failBefore
		}
		return pass
	})
	h := openHub(t, cfg)
	runHub(t, h)
	mustStart(t, h, "loop", "e1", `1`)
	commitActivity(t, mustNext(t, h), 0, `["a"]`)
	raise(t, h, "loop", "first", `1`)
	item := mustNext(t, h)
	next := history.OrchestrationInstance{InstanceID: "loop", ExecutionID: "e2"}
	stuck.Store(true)
	mustCommit(t, item, &provider.Checkpoint{
		Instance: next, ContinuedAsNew: true,
		NewEvents: episode(nil, &history.ExecutionStarted{Header: header(-1), Instance: next, Name: "HelloSeq", Input: new(`"second"`)}),
	})
	eventually(t, "the event comes again", 60*time.Second, func() bool {
		return logged(h, "DuplicateMessageDetected", "could not be deleted then")
	})
	stuck.Store(false)
	eventually(t, "it is deleted", 60*time.Second, func() bool { return messageCount(t, h.controlQueues[0]) == 0 })

	raise(t, h, "loop", "second", `2`)
	item = mustNext(t, h)

	var names []string
	for _, m := range item.Messages {
		if e, ok := m.Event.(*history.EventRaised); ok {
			names = append(names, e.Name)
		}
	}
	if got := strings.Join(names, " "); got != "second" || item.Instance.ExecutionID != "e2" {
		t.Errorf("execution %s was handed the events %q, want only the second in e2", item.Instance.ExecutionID, got)
	}
	commitEnd(t, item, 0, `1`)
}
