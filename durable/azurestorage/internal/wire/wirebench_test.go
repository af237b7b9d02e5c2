package wire

import (
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/recordings"
)

// benchmarkMessage returns the first recorded message that schedules an activity.
func benchmarkMessage(b *testing.B) string {
	b.Helper()
	for _, m := range recordings.Messages(b) {
		if env, err := DecodeEnvelope(m.Text); err == nil && env.Message != nil && env.Message.Event.Type() == history.TypeTaskScheduled {
			return m.Text
		}
	}
	b.Fatal("no such message was recorded")
	return ""
}

func BenchmarkEncodeEnvelope(b *testing.B) {
	env, err := DecodeEnvelope(benchmarkMessage(b))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := EncodeEnvelope(env); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeEnvelope(b *testing.B) {
	text := benchmarkMessage(b)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeEnvelope(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeHistoryRow(b *testing.B) {
	for name, ev := range benchmarkEvents() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				row := EncodeHistoryRow(ev, "8747b3a46089446a9771b91d72f57a5a", 5, "8747b3a46089446a9771b91d72f57a5a")
				row.JSON()
			}
		})
	}
}

func BenchmarkDecodeHistoryRow(b *testing.B) {
	for name, ev := range benchmarkEvents() {
		b.Run(name, func(b *testing.B) {
			row := EncodeHistoryRow(ev, "8747b3a46089446a9771b91d72f57a5a", 5, "8747b3a46089446a9771b91d72f57a5a")
			raw := row.JSON()
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				row, err := DecodeHistoryRow(raw)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := row.Event(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func benchmarkEvents() map[string]history.Event {
	instance := history.OrchestrationInstance{InstanceID: "8747b3a46089446a9771b91d72f57a5a", ExecutionID: "8747b3a46089446a9771b91d72f57a5a"}
	return map[string]history.Event{
		"ExecutionStarted": &history.ExecutionStarted{Instance: instance, Name: "E1_HelloSequence", Input: new("null"), Generation: new(0)},
		"TaskCompleted":    &history.TaskCompleted{TaskScheduledID: 3, Result: new(`"Hello Tokyo!"`)},
	}
}
