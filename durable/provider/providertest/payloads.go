package providertest

import (
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

var payloads = area{"large payloads", []test{
	{"large inputs, events, results and outputs arrive whole", running(largeEverywhere)},
	{"a large custom status can be read", running(largeCustomStatus)},
	{"an episode with many events is committed", running(manyEvents)},
	{"sizes around the limits of storage services pass", running(awkwardSizes)},
}}

// large returns a JSON text of about a megabyte that is not easy to compress
// away, nor of one byte a character.
func large(seed string) *string {
	var b strings.Builder
	b.WriteByte('"')
	for i := 0; b.Len() < 1<<20; i++ {
		b.WriteString(seed)
		b.WriteRune(rune('a' + i*i%26))
		b.WriteRune(rune(0x4e00 + i%2000))
	}
	b.WriteByte('"')
	return text(b.String())
}

func largeEverywhere(w *world) {
	input, event, result, output := large("input"), large("event"), large("result"), large("output")
	instance := w.createAs(started("a", "execution", input))
	e := w.next("a")
	w.equal("input in the start", e.item.Messages[0].Event.(*history.ExecutionStarted).Input, input)
	e.schedule(0, "Activity", input).finish()
	w.equal("input in the instance's state", w.state("a").Input, input)

	a := w.nextActivity()
	w.equal("input of the activity", a.Task.Input, input)
	w.complete(a, completed(0, result))
	e = w.next("a")
	w.equal("result", e.item.Messages[0].Event.(*history.TaskCompleted).Result, result)
	e.raise(1, "a", "Event", event).finish()

	e = w.next("a")
	w.equal("event", e.item.Messages[0].Event.(*history.EventRaised).Input, event)
	e.end(history.Completed, output).finish()
	w.equal("output", w.state("a").Output, output)
	w.equal("history", w.history("a"), w.histories[instance])
}

func largeCustomStatus(w *world) {
	w.create("a")
	status := text(`"` + strings.Repeat("status ", 1500) + `"`)
	w.next("a").custom(status).finish()
	w.equal("custom status", w.state("a").CustomStatus, status)
	w.send(raised("a", "Event", nil))
	w.next("a").custom(text(`"small"`)).finish()
	w.equal("custom status", w.state("a").CustomStatus, text(`"small"`))
}

func manyEvents(w *world) {
	const n = 350
	instance := w.create("a")
	e := w.next("a")
	for i := range n {
		e.decide(&history.TaskScheduled{Header: action(i), Name: "Activity"})
	}
	e.finish()
	w.equal("history", w.history("a"), w.histories[instance])
	w.send(raised("a", "Event", nil))
	w.next("a").finish() // which compares the history of the work item
}

func awkwardSizes(w *world) {
	w.begin("a")
	for _, size := range []int{32767, 32768, 32769, 45 << 10, 64<<10 - 1, 64 << 10, 64<<10 + 1} {
		payload := text(`"` + strings.Repeat("x", size-2) + `"`)
		event := raised("a", "Event", payload)
		w.send(event)
		w.equal("messages", w.collect("a", 1), []provider.TaskMessage{event})
	}
	w.equal("number of events", len(w.history("a")), len(w.histories[w.state("a").Instance]))
	past := w.history("a")
	w.equal("history", past, w.histories[w.state("a").Instance])
}
