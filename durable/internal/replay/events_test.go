package replay_test

import (
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay/replaytest"
)

// Ended waits are removed from the list of waits for an event, and from the waiters of the
// other futures in a race. Otherwise each round of a long loop would cost more than the last.
func TestEvents_EndedRacesAreRemoved(t *testing.T) {
	t.Parallel()
	const rounds = 5_000
	ticks := make([]history.Event, rounds)
	for i := range ticks {
		ticks[i] = replaytest.Raised("Tick", "")
	}
	most := 0
	run(t, func(x *replay.Execution, _ *string) (*string, error) {
		long := new(replay.Future)
		x.WaitEvent(long, "Number")
		x.Branch(new(replay.Future), long.Await) // woken by Number as well as the race of each round
		for range rounds {
			tick, number := new(replay.Future), new(replay.Future)
			x.WaitEvent(tick, "Tick")
			x.WaitEvent(number, "Number")
			x.AwaitAny([]*replay.Future{tick, number, long})
			events, waiters := x.StoredWaits("Number", long)
			most = max(most, events, waiters)
		}
		return nil, nil
	}, nil, append([]history.Event{start()}, ticks...)...)
	if most == 0 || most > 10 {
		t.Errorf("up to %d waits were stored, want 1 to 10", most)
	}
}

// resemblesAnswer is a payload of a client's event. Its end resembles the end of an entity's answer.
const resemblesAnswer = `{"id":7,"origin":"7d444840-9dc0-11d1-b245-5ffdce74fad2"}`

func TestEvents_APayloadMayResembleTheAnswerOfAnEntity(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, event, payload string }{
		{"the end", "Order", resemblesAnswer},
		{"the end, and the name", "9e952958-5e33-4daf-827f-2fa12937b875", resemblesAnswer},
		{"the whole payload", "Order", `{"result":"7","origin":"7d444840-9dc0-11d1-b245-5ffdce74fad2"}`},
		{"the whole payload, and the length of the name", "The-order-of-the-customer-in-seat-12", `{"result":"7","origin":"7d444840-9dc0-11d1-b245-5ffdce74fad2"}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := replaytest.New(t, "O", func(x *replay.Execution, _ *string) (*string, error) {
				var f replay.Future
				x.WaitEvent(&f, test.event)
				f.Await()
				return f.Event().(*history.EventRaised).Input, nil
			})
			s.Start(nil)
			s.Episode(replaytest.Raised(test.event, test.payload))
			if got := s.Output(history.Completed); got != test.payload {
				t.Errorf("received %s, want %s", got, test.payload)
			}
		})
	}
}
