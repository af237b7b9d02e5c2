package eventjson_test

import (
	"encoding/json"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/history/historytest"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/eventjson"
)

func TestMarshal_KeepsEachField(t *testing.T) {
	historytest.RoundTrip(t, "Event and Member in durable/internal/eventjson", func(ev history.Event) (history.Event, error) {
		text, err := eventjson.Marshal(ev)
		if err != nil {
			return nil, err
		}
		var read eventjson.Event
		if err := json.Unmarshal(text, &read); err != nil {
			return nil, err
		}
		return read.Decode(ev.Type())
	})
}

// An event field that Event lacks is a programming error.
func TestDecode_PanicsForAFieldThatEventLacks(t *testing.T) {
	defer func() {
		want := "package eventjson: Event has no member Other of type *int; add the member to Event, and its name to Member"
		if got := recover(); got != want {
			t.Errorf("the panic is %v, want %q", got, want)
		}
	}()
	eventjson.ReadInt(&eventjson.Event{}, "Other")
}
