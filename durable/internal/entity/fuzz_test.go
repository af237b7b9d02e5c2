package entity_test

import (
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
)

// For any message and any stored state, the result is an error or a state that can be encoded
// and decoded.
func FuzzBatch(f *testing.F) {
	f.Add("", "op", `{"op":"add","signal":true,"input":"7","id":"55555555-5555-5555-5555-555555555555","Timestamp":"0001-01-01T00:00:00"}`)
	f.Add(`{"state":"5","queue":[null],"lockedBy":"p","sorter":{"ReceivedFromInstance":{"p":{"Last":"2026-11-20T18:34:38.9916613","Buffered":{"2026-11-20T18:34:38.9916613":{"op":"x","id":"1"}}}}}}`,
		"release", `{"parent":"p","id":"x"}`)
	f.Add(`{"sorter":{"LastSentToInstance":{"@a@b":"2026-11-20T18:34:38.9916613"},"SendHorizon":"9999-12-31T23:59:59.9999999Z"}}`,
		"op", `{"op":null,"id":"3","parent":"q","Timestamp":"9999-12-31T23:59:59.9999999Z","lockset":[{"name":"a","key":"b"},{"name":"c","key":"d"}]}`)
	f.Add(`{"outbox":[{"to":"a","start":"X","due":"2026-11-20T18:34:38Z"}],"memory":{"taken":"AAAAAAAB","repeated":{"2026-11-20T18:34:38Z":"AAAAAAAC"},"doubtful":[{"outbox":[{"to":"a","event":"op"}]}]}}`, "continue", "")
	waits := `"Buffered":{"2026-11-20T12:00:02":{"op":"1","id":"1","Timestamp":"2026-11-20T12:00:02","Predecessor":"2026-11-20T12:00:01"},` +
		`"2026-11-20T12:00:03":{"op":"2","id":"2","Timestamp":"2026-11-20T12:00:03","Predecessor":"2026-11-20T12:00:01"}}`
	f.Add(`{"sorter":{"ReceivedFromInstance":{"p":{"Last":"2026-11-20T12:00:01","ExecutionId":"a","others":[{"ExecutionId":"b",`+waits+`},{"ExecutionId":"c",`+waits+`},{"ExecutionId":"d",`+waits+`},{"ExecutionId":"e",`+waits+`}]}}}}`,
		"op", `{"op":"x","id":"3","parent":"p","parentExecution":"f","Timestamp":"2026-11-20T12:00:04"}`)
	f.Fuzz(func(t *testing.T, stateText, name, input string) {
		state, err := entity.DecodeState(&stateText)
		if err != nil {
			state = new(entity.State)
		}
		e := &history.EventRaised{Name: name, Input: &input}
		settings := settings
		settings.Resend = true
		b, _ := entity.Begin("@a@b", state, []history.Event{e}, noon, settings)
		for op, ok := b.Next(); ok; op, ok = b.Next() {
			b.Done(entity.Result{State: op.Input, Output: op.State})
		}
		b.Finish("x")
		stored(t, stored(t, state))
		_, _ = entity.ParseResponse(&input)
		_, _ = entity.ParseStatus(&input)
	})
}
