package entity_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
)

// callers sends the requests of senders from to to-1 of the crowd to an entity, in batches of
// 250.
func callers(p *play, from, to int) (ran map[string]int) {
	p.Helper()
	ran = map[string]int{}
	for n := from; n < to; {
		var events []history.Event
		for ; n < to && len(events) < 250; n++ {
			events = append(events, op(*fromCrowd(n, 0)))
		}
		p.now = noon.Add(time.Duration(n) * time.Millisecond)
		p.run(ran, events...)
		p.state.Settle()
	}
	return ran
}

// An entity has full entries for a few senders and two marks for each of the others. Duplicates
// are recognized, and their next requests do not wait.
func TestPast_RecognizesHundredsOfSendersByTheirMarks(t *testing.T) {
	t.Parallel()
	const n = 500
	p := newPlay(t)
	callers(p, 0, n)
	p.run(map[string]int{}) // this batch finds too many senders
	if size := len(p.state.Encode()); size > 20_000 {
		t.Errorf("the state has %d bytes after %d callers, want at most 20,000", size, n)
	}
	if ran := callers(p, 0, n); ran["crowd"] > 0 {
		t.Errorf("%d of %d requests took effect again", ran["crowd"], n)
	}
	ran := map[string]int{}
	for i := 0; i < n; i += 5 {
		again := fromCrowd(i, time.Minute) // the label of another attempt
		next := &entity.Request{Operation: "next", Parent: again.Parent, ParentExecution: "x", Timestamp: again.Timestamp.Add(time.Second), Predecessor: fromCrowd(i, 0).Timestamp}
		if i%2 == 0 {
			next.Predecessor = again.Timestamp
			p.run(ran, op(*again))
			p.state.Settle()
		}
		p.run(ran, op(*next))
		p.state.Settle()
	}
	if ran["crowd"] > 0 || ran["next"] != n/5 {
		t.Errorf("%d duplicates took effect, want none; %d of %d following requests did", ran["crowd"], ran["next"], n/5)
	}
}

// A request that arrives before its predecessor waits for it, although its sender is new and
// thousands of other senders follow.
func TestPast_AnEarlyRequestWaitsForItsPredecessor(t *testing.T) {
	t.Parallel()
	p := newPlay(t)
	callers(p, 0, 2000)
	first, second := fromCrowd(100_000, -100*time.Second), fromCrowd(100_000, -99*time.Second) // older than all others
	first.Operation, second.Operation = "first", "second"
	second.ID, second.Predecessor = entity.DeriveID("second"), first.Timestamp
	p.run(map[string]int{}, op(*second))
	p.state.Settle()
	callers(p, 2000, 3000)
	p.get(op(*first))
	if len(p.log) < 2 || p.log[0] != "ran first" || p.log[1] != "ran second" {
		t.Errorf("got %v, want the first request to run before the second", p.log)
	}
}

// The size of the state does not depend on the number of senders, and the next request of the
// first sender does not wait.
func TestPast_IsBounded(t *testing.T) {
	t.Parallel()
	size := func(n int) (int, *play) {
		p := newPlay(t)
		callers(p, 0, n)
		return len(p.state.Encode()), p
	}
	few, _ := size(6000)
	many, p := size(12_000)
	if many > few*11/10 || many > 100_000 {
		t.Errorf("the state has %d bytes after 6,000 callers and %d after 12,000", few, many)
	}
	ran := map[string]int{}
	p.run(ran, op(entity.Request{Operation: "next", Parent: "member 0", ParentExecution: "x", Timestamp: p.now, Predecessor: noon}))
	if ran["next"] != 1 {
		t.Error("the next request of the first sender waits")
	}
}

// The same holds if forgotten senders send requests again and again, also if each has continued
// as new in between.
func TestPast_IsBoundedWhenSendersReturn(t *testing.T) {
	t.Parallel()
	const n = 5000
	for name, execution := range map[string]func(int) string{"one execution": func(int) string { return "x" }, "many": func(round int) string { return fmt.Sprint("x", round) }} {
		p, ran := newPlay(t), map[string]int{}
		for round := range 4 {
			at := func(round, i int) time.Time { return noon.Add(time.Duration(round*n+i) * 20 * time.Millisecond) }
			for i := 0; i < n; {
				var events []history.Event
				for ; i < n && len(events) < 1000; i++ {
					r := entity.Request{Operation: "call", Parent: fmt.Sprint("member ", i), ParentExecution: execution(round), Timestamp: at(round, i)}
					if round > 0 && name == "one execution" {
						r.Predecessor = at(round-1, i)
					}
					events = append(events, op(r))
				}
				p.now = at(round, i)
				p.run(ran, events...)
				p.state.Settle()
			}
			if want := n * (round + 1); ran["call"] != want {
				t.Fatalf("%s: after round %d, %d requests took effect, want %d", name, round, ran["call"], want)
			}
		}
		p.run(ran)
		p.state.Settle()
		if size := len(p.state.Encode()); size > 100_000 {
			t.Errorf("%s: the state has %d bytes", name, size)
		}
	}
}

// The state contains nothing of a crowd an hour later.
func TestPast_IsForgottenAfterTheWindow(t *testing.T) {
	t.Parallel()
	state := func(n int) string {
		p := newPlay(t)
		callers(p, 0, n)
		for i := range 2 {
			p.now = noon.Add(time.Duration(i+1) * time.Hour)
			last := fromCrowd(1_000_000, time.Duration(i+1)*time.Hour-1000*time.Second)
			last.ID = entity.DeriveID(fmt.Sprint(i))
			p.run(map[string]int{}, op(*last))
			p.state.Settle()
		}
		return p.state.Encode()
	}
	if few, many := len(state(1)), len(state(6000)); few != many {
		t.Errorf("an hour later the state has %d bytes after one caller and %d after 6,000", few, many)
	}
}

// A .NET worker that acquires the entity ignores the past, and must not wait for the labels in
// it. Its horizon is therefore after those labels. Workers of this project read their own
// horizon.
func TestPast_DotNetDoesNotWaitForItsLabels(t *testing.T) {
	t.Parallel()
	p := newPlay(t)
	callers(p, 0, 1000)
	var wire struct {
		Sorter struct {
			ReceivedFromInstance map[string]struct{ Last time.Time }
			ReceiveHorizon       time.Time
		} `json:"sorter"`
	}
	if err := json.Unmarshal([]byte(p.state.Encode()), &wire); err != nil {
		t.Fatal(err)
	}
	for n := range 1000 {
		member := fromCrowd(n, 0)
		if _, known := wire.Sorter.ReceivedFromInstance[member.Parent]; !known && !member.Timestamp.Before(wire.Sorter.ReceiveHorizon) {
			t.Fatalf("%s has no entry, and its label %v is not before the horizon %v", member.Parent, member.Timestamp, wire.Sorter.ReceiveHorizon)
		}
	}
	if n := len(wire.Sorter.ReceivedFromInstance); n > 400 {
		t.Errorf("%d senders have entries, want at most 400", n)
	}
}
