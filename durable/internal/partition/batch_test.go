package partition

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/partition/partitiontest"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Large messages are delivered in several batches, in order. A message above the limit is delivered alone.
func TestInstance_LargeMessagesAreDeliveredInBatches(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Start("a")
	item := r.Next()
	for i := range 10 {
		r.Raise("a", fmt.Sprint(i))
	}
	r.setSizes("a", 30<<20, 30<<20, 4<<20, 1, 200<<20, 200<<20, 1, maxBytes, 1, 1)
	var got []string
	for r.Finish(item); len(strings.Join(got, "")) < 10; r.Finish(item) {
		item = r.Next()
		batch := ""
		for _, m := range item.Messages {
			batch += m.Event.(*history.EventRaised).Name
		}
		got = append(got, batch)
	}
	if want := []string{"012", "3", "4", "5", "6", "7", "89"}; !slices.Equal(got, want) {
		t.Errorf("got batches %q; want %q", got, want)
	}
	r.Raise("a", "end")
	r.Finish(r.Next(), partitiontest.Ended())
	r.wantNoWork()
}

// A start comes first and counts. A termination is always in the next batch.
func TestInstance_AStartAndATerminationPassLargeMessages(t *testing.T) {
	t.Parallel()
	large := func(n uint64) *message {
		return &message{number: n, size: maxBytes, route: route{kind: history.TypeEventRaised}}
	}
	inst := &instance{id: "a"}
	for _, m := range []*message{
		large(1),
		{number: 2, size: 10, route: route{kind: history.TypeExecutionStarted}},
		large(3),
		{number: 4, size: 10, route: route{kind: history.TypeExecutionTerminated}},
	} {
		inst.add(m)
	}
	for i, want := range [][]uint64{{2, 4}, {1}, {3}} {
		var got []uint64
		for _, m := range inst.take() {
			got = append(got, m.number)
		}
		if !slices.Equal(got, want) {
			t.Errorf("batch %d has messages %v; want %v", i, got, want)
		}
	}
}

// Messages that are sent, results of activities, and messages that Open loads have the sizes of their records.
func TestMessage_HasTheSizeOfItsRecord(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Start("a")
	r.Finish(r.Next(), partitiontest.Scheduled(0))
	r.Raise("a", "E")
	item := r.Next()
	e := &history.EventRaised{Name: "F", Input: new(strings.Repeat("x", 10_000))}
	r.Must(r.Send(t.Context(), provider.TaskMessage{Event: e, Target: item.Instance}))
	result := partitiontest.ResultOf(0)
	result.Result = new(strings.Repeat("x", 20_000))
	r.Must(r.AwaitActivity().Lock.Complete(context.Background(), result))
	r.Must(item.Session.Release(t.Context()))
	for _, when := range []string{"when they are sent", "after Open"} {
		r.mu.Lock()
		sizes := []int{}
		for _, m := range r.instances["a"].inbox {
			if m.size >= 10_000 {
				sizes = append(sizes, m.size/10_000)
			}
		}
		r.mu.Unlock()
		if want := []int{1, 2}; !slices.Equal(sizes, want) {
			t.Errorf("%s, the messages have %d times 10,000 bytes; want %d", when, sizes, want)
		}
		r.stop()
		r.close()
		r = openRig(t, r.disk)
	}
}

// setSizes sets the sizes of the messages in an instance's inbox.
func (r *rig) setSizes(id string, sizes ...int) {
	r.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	inbox := r.instances[id].inbox
	if len(inbox) != len(sizes) {
		r.Fatalf("the inbox has %d messages, want %d", len(inbox), len(sizes))
	}
	for i, m := range inbox {
		m.size = sizes[i]
	}
}
