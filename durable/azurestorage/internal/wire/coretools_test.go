package wire

import (
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/eventjson"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/recordings"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

// The Functions Core Tools contain version 1.4 of DurableTask.AzureStorage. Its EventRaised has number
// 14, and its messages have no sender.
func TestDecodeEnvelope_ReadsTheCoreTools(t *testing.T) {
	var got []*Envelope
	for _, line := range recordings.CoreTools(t) {
		if line.Queue == "" {
			continue
		}
		env, err := DecodeEnvelope(line.Text)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, env)
	}
	at := func(s string) history.Header {
		parsed, err := eventjson.ParseTime(s)
		if err != nil {
			t.Fatal(err)
		}
		return history.NewHeader(parsed)
	}
	start := func(activity, id, execution, name, input, when string) *Envelope {
		instance := history.OrchestrationInstance{InstanceID: id, ExecutionID: execution}
		return &Envelope{
			ActivityID: uuid.MustParse(activity), SequenceNumber: 1, Episode: new(0),
			Message: &provider.TaskMessage{
				Event:  &history.ExecutionStarted{Header: at(when), Instance: instance, Name: name, Input: &input},
				Target: instance,
			},
		}
	}
	send := func(activity string, ev history.Event) *Envelope {
		return &Envelope{
			ActivityID: uuid.MustParse(activity), SequenceNumber: 1, Episode: new(0),
			Message: &provider.TaskMessage{Event: ev, Target: history.OrchestrationInstance{InstanceID: "ct1"}},
		}
	}
	wrapper := func(blob string) *Envelope { return &Envelope{CompressedBlobName: blob, Episode: new(0)} }
	want := []*Envelope{
		start("4043e369-ee2e-497b-9122-019a159ef0ac", "ct2", "e59d5a3b1f6042b5906b310943748e64", "NoInput", "null", "2026-11-20T21:47:25.4709325Z"),
		wrapper("ctbig/message-0000000000000001-executionstarted.json.gz"),
		start("230aa09a-ec69-4686-b12e-686a81c69eb9", "ctj", "18b4529fb6794b38bb06688353cabdaa", "J", `{"n":5}`, "2026-11-20T21:47:54.4446474Z"),
		start("250fcb9d-36d8-4d09-8dd5-22079f649b5e", "ct1", "d3b8c46cc4814e5c80e3966197ad8f44", "E1_HelloSequence", `"{\"a\":\"é<&>\"}"`, "2026-11-20T21:46:03.2262631Z"),
		send("0d14d125-12e8-482b-b7f7-cbd4c87a80bb", &history.EventRaised{Header: at("2026-11-20T21:46:30.405841Z"), Name: "approve", Input: new(`"{\"ok\":true}"`)}),
		send("74885959-9674-433a-a7e0-2210848b49b5", &history.EventRaised{Header: at("2026-11-20T21:46:30.8928297Z"), Name: "plain", Input: new(`"hello world"`)}),
		send("8286fb86-9eff-4671-9e13-97bd12ba0dfe", &history.ExecutionTerminated{Header: at("2026-11-20T21:46:31.5572808Z"), Reason: new("stop it é")}),
		send("114f8770-97f6-4775-9230-95571402f313", &history.EventRaised{Header: at("2026-11-20T21:47:53.3936839Z"), Name: "num", Input: new(`{"n":5}`)}),
		send("18277127-5c02-4533-9f41-e76910a78f2d", &history.EventRaised{Header: at("2026-11-20T21:47:53.8996632Z"), Name: "none", Input: new(`null`)}),
		wrapper("ctbig2/message-0000000000000001-executionstarted.json.gz"),
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("envelopes (-got +want):\n%s", diff)
	}
}

// The Core Tools' rows have no execution ID, generation and tags. A reader must not interpret this as
// another execution.
func TestDecodeInstanceRow_ReadsTheCoreTools(t *testing.T) {
	got := map[string]*InstanceRow{}
	for _, line := range recordings.CoreTools(t) {
		if line.Table == "" {
			continue
		}
		row, err := DecodeInstanceRow(line.Row)
		if err != nil {
			t.Fatal(err)
		}
		got[row.State.Instance.InstanceID] = row
	}
	row := func(id, name, input, created, updated, etag string) *InstanceRow {
		r := &InstanceRow{ETag: etag}
		r.State.Instance.InstanceID = id
		r.State.Name = name
		r.State.Status = history.Pending
		r.State.Input = &input
		var err error
		if r.State.CreatedAt, err = eventjson.ParseTime(created); err != nil {
			t.Fatal(err)
		}
		if r.State.LastUpdatedAt, err = eventjson.ParseTime(updated); err != nil {
			t.Fatal(err)
		}
		return r
	}
	want := map[string]*InstanceRow{
		"ct1": row("ct1", "E1_HelloSequence", `"{\"a\":\"é<&>\"}"`,
			"2026-11-20T21:46:03.2262631Z", "2026-11-20T21:46:03.6661072Z", "W/\"datetime'2026-11-20T21%3A46%3A03.6681198Z'\""),
		"ct2": row("ct2", "NoInput", "null",
			"2026-11-20T21:47:25.4709325Z", "2026-11-20T21:47:25.6976773Z", "W/\"datetime'2026-11-20T21%3A47%3A25.6991493Z'\""),
		"ctbig": row("ctbig", "Big", "ctbig/message-0000000000000001-executionstarted.json.gz",
			"2026-11-20T21:47:52.0375827Z", "2026-11-20T21:47:52.2858298Z", "W/\"datetime'2026-11-20T21%3A47%3A52.2877362Z'\""),
		"ctbig2": row("ctbig2", "Big", "ctbig2/message-0000000000000001-executionstarted.json.gz",
			"2026-11-20T21:47:52.6315357Z", "2026-11-20T21:47:52.8491138Z", "W/\"datetime'2026-11-20T21%3A47%3A52.8502989Z'\""),
		"ctj": row("ctj", "J", `{"n":5}`,
			"2026-11-20T21:47:54.4446474Z", "2026-11-20T21:47:54.7043562Z", "W/\"datetime'2026-11-20T21%3A47%3A54.7051551Z'\""),
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("rows (-got +want):\n%s", diff)
	}
}
