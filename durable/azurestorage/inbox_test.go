package azurestorage

import (
	"runtime"
	"slices"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A session that waits for messages gets all that came at once, so that one episode
// and one transaction do for them.
func TestInbox_HandsOutTogetherWhatCameTogether(t *testing.T) {
	t.Parallel()
	const rounds, many = 100, 100
	instance := history.OrchestrationInstance{InstanceID: "many", ExecutionID: "e1"}
	var deliveries []*delivery
	for range many {
		raised := &provider.TaskMessage{Event: &history.EventRaised{Header: header(-1), Name: "go"}, Target: instance}
		deliveries = append(deliveries, &delivery{env: &wire.Envelope{Message: raised}})
	}
	for range rounds {
		h := &TaskHub{}
		h.inbox = newInbox(h)
		p := newPartition(h, nil)
		s := &slot{id: "many", partition: p, session: &session{execution: "e1"}}
		h.inbox.slots["many"] = s
		go (&reading{partition: p}).arrive(deliveries...)
		for n := 0; n < many; runtime.Gosched() {
			h.inbox.mu.Lock()
			n = len(s.incoming)
			h.inbox.mu.Unlock()
			if n > 0 && n < many {
				t.Fatalf("%d of %d messages could be handed out without the others", n, many)
			}
		}
	}
}

// What is sent one after the other is in that order when it is handed over in memory.
func TestPartition_AdmitsInTheOrderOfSending(t *testing.T) {
	t.Parallel()
	const many = 1000
	h := &TaskHub{}
	h.inbox = newInbox(h)
	p := newPartition(h, nil)
	p.reading = &reading{partition: p}
	s := &slot{id: "many", partition: p, session: &session{execution: "e1"}}
	h.inbox.slots["many"] = s
	for i := range int64(many) {
		raised := &provider.TaskMessage{Event: &history.EventRaised{Header: header(-1), Name: "go"}, Target: history.OrchestrationInstance{InstanceID: "many"}}
		p.admit(t.Context(), []*delivery{{env: &wire.Envelope{Message: raised, SequenceNumber: i}}})
	}
	p.reading.done.Wait()
	if len(s.incoming) != many {
		t.Fatalf("%d messages came, want %d", len(s.incoming), many)
	}
	for i, d := range s.incoming {
		if d.env.SequenceNumber != int64(i) {
			t.Fatalf("message %d came as number %d", d.env.SequenceNumber, i)
		}
	}
}

// The order of the decisions is in the numbers, although messages are sent side by
// side: whoever receives some together sorts them by it.
func TestSession_NumbersMessagesInTheOrderOfTheDecisions(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		const activities = 20
		cfg := testConfig(t)
		cfg.MaxConcurrentActivities = activities
		h, _ := serving(t, cfg)
		mustStart(t, h, "fanout", "e1", `1`)
		item := mustNext(t, h)
		cp := &provider.Checkpoint{Instance: item.Instance}
		var decided []history.Event
		for i := range activities {
			ev, msg := schedule(item, i, `["a"]`)
			decided, cp.Activities = append(decided, ev), append(cp.Activities, msg)
		}
		cp.NewEvents = episode(item.Messages, decided...)
		mustCommit(t, item, cp)
		numbers := make([]int64, activities)
		for range activities {
			d, err := h.activities.next(patience.Context(t))
			if err != nil {
				t.Fatal(err)
			}
			numbers[taskOf(d.event())] = d.env.SequenceNumber
			d.abandon(t.Context(), "it was looked at")
		}
		if !slices.IsSorted(numbers) || numbers[0] == 0 {
			t.Errorf("numbers %v, want them to rise", numbers)
		}
	})
}
