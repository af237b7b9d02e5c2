package inbound

import (
	"log/slog"
	"runtime"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/inflight"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/monitor"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

func emptyInbox() *Inbox {
	held := inflight.New(monitor.New(slog.New(slog.DiscardHandler), nil, nil), nil, inflight.Config{})
	return NewInbox("w", 256, held, nil, &Disposer{})
}

// A session that waits for messages receives all messages that arrived together. One episode and
// one transaction then handle them.
func TestInbox_DeliversMessagesTogetherThatArriveTogether(t *testing.T) {
	t.Parallel()
	const rounds, many = 100, 100
	instance := history.OrchestrationInstance{InstanceID: "many", ExecutionID: "e1"}
	var deliveries []*inflight.Delivery
	for range many {
		raised := &provider.TaskMessage{Event: &history.EventRaised{Header: history.Header{EventID: history.NoEventID}, Name: "go"}, Target: instance}
		deliveries = append(deliveries, &inflight.Delivery{Env: &wire.Envelope{Message: raised}})
	}
	for range rounds {
		b := emptyInbox()
		p := &Partition{inbox: b}
		s := &slot{id: "many", partition: p, lock: &Lock{execution: "e1"}}
		b.slots["many"] = s
		go (&Reading{partition: p}).Arrive(deliveries...)
		for n := 0; n < many; runtime.Gosched() {
			b.mu.Lock()
			n = len(s.incoming)
			b.mu.Unlock()
			if n > 0 && n < many {
				t.Fatalf("%d of %d messages could be dispatched without the others", n, many)
			}
		}
	}
}

// Messages that are sent one after the other keep their order when they are delivered in memory.
func TestPartition_AdmitsInSendOrder(t *testing.T) {
	t.Parallel()
	const many = 1000
	b := emptyInbox()
	p := &Partition{inbox: b}
	p.reading = &Reading{partition: p}
	s := &slot{id: "many", partition: p, lock: &Lock{execution: "e1"}}
	b.slots["many"] = s
	for i := range int64(many) {
		raised := &provider.TaskMessage{Event: &history.EventRaised{Header: history.Header{EventID: history.NoEventID}, Name: "go"}, Target: history.OrchestrationInstance{InstanceID: "many"}}
		p.Admit(t.Context(), []*inflight.Delivery{{Env: &wire.Envelope{Message: raised, SequenceNumber: i}}})
	}
	p.reading.done.Wait()
	if len(s.incoming) != many {
		t.Fatalf("%d messages arrived, want %d", len(s.incoming), many)
	}
	for i, d := range s.incoming {
		if d.Env.SequenceNumber != int64(i) {
			t.Fatalf("message %d is at position %d", d.Env.SequenceNumber, i)
		}
	}
}
