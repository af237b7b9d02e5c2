package entity_test

import (
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/google/go-cmp/cmp"
)

func TestRequest_EncodesItsTrace(t *testing.T) {
	at := time.Date(2026, time.November, 20, 18, 34, 38, 123_456_700, time.UTC)
	name, text := entity.NewSignal("5f0c8a1e-0000-4000-8000-000000000001", "add", new("1"), time.Time{}, at)
	r, err := entity.DecodeRequest(&text)
	if err != nil || name != "op" {
		t.Fatal(name, err)
	}
	if got := r.Trace(); got != (entity.Trace{}) {
		t.Errorf("the trace of a request without one is %+v", got)
	}
	want := entity.Trace{
		Parent: &history.TraceContext{TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", TraceState: new(`a="b"`)},
		Create: true, At: at,
	}
	r.SetTrace(want)
	encoded := r.Encode()
	again, err := entity.DecodeRequest(&encoded)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, again.Trace()); diff != "" {
		t.Errorf("trace (-set +decoded):\n%s", diff)
	}
	if again.ID != r.ID || *again.Input != "1" || !again.Signal {
		t.Errorf("the other members changed: %+v", again)
	}
	r.SetTrace(entity.Trace{})
	if r.Encode() != text {
		t.Errorf("the request without its trace is %s, want %s", r.Encode(), text)
	}
	broken := `{"op":"add","id":"x","parentTraceContext":7,"requestTime":"soon","createTrace":true}`
	if r, err := entity.DecodeRequest(&broken); err != nil || r.Trace() != (entity.Trace{Create: true}) {
		t.Errorf("invalid trace: got %v, %v", r, err)
	}
}
