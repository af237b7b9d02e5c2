package inbound

import (
	"log/slog"
	"runtime"
	"slices"
	"strings"
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

func TestMessageBatch_JoinsEarlierMessages(t *testing.T) {
	t.Parallel()
	message := func(name string) *inflight.Delivery {
		kind, execution, _ := strings.Cut(name, " ")
		m := &provider.TaskMessage{Target: history.OrchestrationInstance{InstanceID: "i", ExecutionID: execution}}
		switch kind {
		case "start":
			m.Event = &history.ExecutionStarted{}
		default:
			m.Event = &history.EventRaised{Name: name}
		}
		return &inflight.Delivery{Env: &wire.Envelope{Message: m}}
	}
	all := func(names ...string) (list []*inflight.Delivery) {
		for _, name := range names {
			list = append(list, message(name))
		}
		return list
	}
	text := func(list []*inflight.Delivery) (names []string) {
		for _, d := range list {
			if raised, ok := d.Event().(*history.EventRaised); ok {
				names = append(names, raised.Name)
			} else {
				names = append(names, "start "+d.Target().ExecutionID)
			}
		}
		return names
	}
	for name, c := range map[string]struct {
		execution                    string // of the batch
		batch, earlier, want, others []string
	}{
		"a start becomes the first message":                 {"", []string{"suspend"}, []string{"a", "start e1", "b"}, []string{"start e1", "a", "b", "suspend"}, nil},
		"a batch has one start":                             {"e1", []string{"start e1", "suspend"}, []string{"a", "start e1"}, []string{"start e1", "a", "suspend"}, []string{"start e1"}},
		"the second start is delivered later":               {"", []string{"suspend"}, []string{"start e1", "start e1"}, []string{"start e1", "suspend"}, []string{"start e1"}},
		"messages of another execution are delivered later": {"e2", []string{"suspend e2"}, []string{"start e1", "a", "b e1"}, []string{"a", "suspend e2"}, []string{"start e1", "b e1"}},
		"nothing is hidden":                                 {"e1", []string{"suspend"}, nil, []string{"suspend"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := &messageBatch{executionID: c.execution, deliveries: all(c.batch...)}
			others := b.join(all(c.earlier...))
			if got := text(b.deliveries); !slices.Equal(got, c.want) || !slices.Equal(text(others), c.others) {
				t.Errorf("the batch has %q, others are %q; want %q and %q", got, text(others), c.want, c.others)
			}
		})
	}
}
