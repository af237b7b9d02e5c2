package sim

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// Stream is a sequence of numbered events. One client raises them one after the other. A separate instance
// reports the order in which it receives them.
type Stream struct {
	ID    string
	Begin time.Duration
	Count int // number of events
	Names int // number of event names, used in turn
	Burst int // number of additional events that are raised concurrently
	// Renews and Works are numbers of events. After every Renews events the instance continues as new while
	// other events may be pending; after every Works events it calls an activity. Zero means never.
	Renews, Works int
}

// NewStreamPlan is [NewVariedPlan] with streams. For every second seed, nothing returns messages to the
// storage.
func NewStreamPlan(seed uint64) *Plan {
	p := NewVariedPlan(seed)
	r := rand.New(rand.NewPCG(seed, 0x57AEA))
	g := generator{r: r}
	if seed%2 == 0 {
		p.Workers, p.Faults, p.Loose, p.Disturbances = 1, 0, false, nil
	}
	for n := range 1 + r.IntN(3) {
		p.Streams = append(p.Streams, Stream{
			ID: fmt.Sprintf("s%d", n), Begin: g.upTo(20 * time.Second), Count: 2 + r.IntN(19),
			Names: 1 + r.IntN(3), Renews: r.IntN(7), Works: r.IntN(5),
		})
	}
	return p
}

// listening is the input of the orchestrator of a stream.
type listening struct {
	Stream
	Got []int
}

const listen = durable.OrchestratorName[listening, []int]("Listen")

func streamEvent(st Stream, n int) durable.Event[int] {
	return durable.Event[int](fmt.Sprintf("event-%d", n%st.Names))
}

// hear is the orchestrator of a stream.
func hear(ctx *durable.Context, in listening) ([]int, error) {
	for len(in.Got) < in.Count {
		n := len(in.Got)
		got, err := streamEvent(in.Stream, n).Wait(ctx).Await()
		if err != nil {
			return nil, err
		}
		in.Got = append(in.Got, got)
		if in.Works > 0 && n%in.Works == 0 {
			if _, err := work.Call(ctx, Task{Key: fmt.Sprintf("%s/0/0/%d", in.ID, n)}).Await(); err != nil {
				return nil, err
			}
		}
		if in.Renews > 0 && n%in.Renews == 0 {
			return durable.ContinueAsNew(ctx, hear, in)
		}
	}
	return in.Got, nil
}

// eventNumbers returns the numbers of the stream's events in a history.
func eventNumbers(past []history.Event) (numbers []int) {
	for _, e := range past {
		var n int
		if e, ok := e.(*history.EventRaised); ok && e.Input != nil && json.Unmarshal([]byte(*e.Input), &n) == nil {
			numbers = append(numbers, n)
		}
	}
	return numbers
}
