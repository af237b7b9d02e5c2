package entity_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
)

// callers have an entity called by members of the crowd from one to another, a batch for
// each 250.
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

// An entity knows a few of the senders in full, and the others by two marks: what they send
// again takes no effect, and what they send next does at once.
func TestPast_KnowsThousandsOfSendersByTheirMarks(t *testing.T) {
	t.Parallel()
	const n = 500
	p := newPlay(t)
	callers(p, 0, n)
	p.run(map[string]int{}) // with the next batch there are too many
	if size := len(p.state.Encode()); size > 20_000 {
		t.Errorf("the state has %d bytes after %d callers, want at most 20,000", size, n)
	}
	if ran := callers(p, 0, n); ran["crowd"] > 0 {
		t.Errorf("%d of %d requests took effect again", ran["crowd"], n)
	}
	ran := map[string]int{}
	for i := 0; i < n; i += 5 {
		again := fromCrowd(i, time.Minute) // as another attempt has it
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
		t.Errorf("%d requests took effect again, and %d of %d that follow them did", ran["crowd"], ran["next"], n/5)
	}
}

// What comes before its predecessor waits for that, although its sender was never heard of
// and thousands of others were meanwhile.
func TestPast_WhatIsEarlyWaitsForWhatIsLate(t *testing.T) {
	t.Parallel()
	p := newPlay(t)
	callers(p, 0, 2000)
	first, second := fromCrowd(100_000, -100*time.Second), fromCrowd(100_000, -99*time.Second) // before all of those
	first.Operation, second.Operation = "first", "second"
	second.ID, second.Predecessor = entity.DeriveID("second"), first.Timestamp
	p.run(map[string]int{}, op(*second))
	p.state.Settle()
	callers(p, 2000, 3000)
	p.get(op(*first))
	if len(p.log) < 2 || p.log[0] != "ran first" || p.log[1] != "ran second" {
		t.Errorf("got %v, want that the first runs and then the second", p.log)
	}
}

// However many senders there are, the state is no larger, and what its first sender sends
// next does not wait.
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

// It is the same if the senders were forgotten and come back, again and again, and if each
// continues as new meanwhile.
func TestPast_IsBoundedWhenSendersComeBack(t *testing.T) {
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

// An hour later nothing is left of a crowd.
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

// A .NET worker that takes the entity over knows nothing of the past: what follows the labels
// of that must not wait. Its horizon is later than those, and ours is read again.
func TestPast_DotNetDoesNotWaitForIt(t *testing.T) {
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
			t.Fatalf("%s is not known, and its label %v is not before the horizon %v", member.Parent, member.Timestamp, wire.Sorter.ReceiveHorizon)
		}
	}
	if n := len(wire.Sorter.ReceivedFromInstance); n > 400 {
		t.Errorf("%d senders are known in full", n)
	}
}
