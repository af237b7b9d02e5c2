package wire

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/eventjson"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/recordings"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

// dictionaryType matches the $type of .NET's dictionaries, which EncodeEnvelope omits.
var dictionaryType = regexp.MustCompile(
	`"\$type":"System\.Collections\.Generic\.Dictionary` + "`" + `2\[\[System\.String, System\.Private\.CoreLib\],\[System\.String, System\.Private\.CoreLib\]\]",?`)

// unsortedTags sorts the only recorded tags that are not ordered by key.
var unsortedTags = strings.NewReplacer(
	`"Tags":{"t1":"v1","date":"2024-01-01T00:00:00Z"}`, `"Tags":{"date":"2024-01-01T00:00:00Z","t1":"v1"}`)

// Every recorded queue message is decoded and encoded again. The result must equal .NET's message, with
// two exceptions: dictionaries are sorted and have no $type. Messages in the data contract format are
// only decoded.
func TestMessages_AreEncodedAsByDotNet(t *testing.T) {
	var sent, received, dataContract, base64, wrappers int
	for _, m := range recordings.Messages(t) {
		if m.Received {
			received++
		} else {
			sent++
		}
		env, err := DecodeEnvelope(m.Text)
		if err != nil {
			t.Errorf("%s: %v\n%s", m.Request, err, m.Text)
			continue
		}
		text, err := DecodeQueueText(m.Text)
		if err != nil {
			t.Fatal(err)
		}
		if string(text) != m.Text {
			base64++
			if got := EncodeQueueText(text, true); got != m.Text {
				t.Errorf("%s: Base64 text is %q, want %q", m.Request, got, m.Text)
			}
		}
		if env.Message == nil {
			wrappers++
			if got, want := env, NewWrapper(env.CompressedBlobName); !cmp.Equal(got, want) {
				t.Errorf("%s: wrapper %s", m.Request, cmp.Diff(got, want))
			}
		}
		if strings.Contains(string(text), eventjson.ContractTypeMember) {
			dataContract++
			continue
		}
		got, err := EncodeEnvelope(env)
		if err != nil {
			t.Errorf("%s: %v", m.Request, err)
			continue
		}
		want := unsortedTags.Replace(dictionaryType.ReplaceAllString(string(text), ""))
		if diff := cmp.Diff(string(got), want); diff != "" {
			t.Errorf("%s (-got +want):\n%s", m.Request, diff)
		}
	}
	recordings.WantCount(t, "sent messages", sent, 157)
	recordings.WantCount(t, "received messages", received, 144)
	recordings.WantCount(t, "messages in Base64", base64, 1)
	recordings.WantCount(t, "messages of the data-contract serializer", dataContract, 1)
	recordings.WantCount(t, "wrappers of large messages", wrappers, 13)
}

// The recorded messages contain all events that orchestrations and clients send.
func TestMessages_CoverAllSentEvents(t *testing.T) {
	got := map[history.EventType]int{}
	for _, m := range recordings.Messages(t) {
		env, err := DecodeEnvelope(m.Text)
		if err != nil {
			t.Fatal(err)
		}
		if env.Message != nil && !m.Received {
			got[env.Message.Event.Type()]++
		}
	}
	want := map[history.EventType]int{
		history.TypeExecutionStarted:                  47,
		history.TypeExecutionTerminated:               6,
		history.TypeExecutionSuspended:                3,
		history.TypeExecutionResumed:                  3,
		history.TypeTaskScheduled:                     28,
		history.TypeTaskCompleted:                     18,
		history.TypeTaskFailed:                        10,
		history.TypeSubOrchestrationInstanceCompleted: 2,
		history.TypeSubOrchestrationInstanceFailed:    4,
		history.TypeTimerFired:                        6,
		history.TypeEventRaised:                       21,
		history.TypeGenericEvent:                      2,
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("messages by type (-got +want):\n%s", diff)
	}
}

// With UseDataContractSerialization (MessageData.cs), members are sorted by name, dictionaries are
// arrays, and __type is the event's type.
func TestDecodeEnvelope_ReadsTheDataContractForm(t *testing.T) {
	var found int
	for _, m := range recordings.Messages(t) {
		if !strings.Contains(m.Text, eventjson.ContractTypeMember) {
			continue
		}
		found++
		got, err := DecodeEnvelope(m.Text)
		if err != nil {
			t.Fatal(err)
		}
		at, err := eventjson.ParseTime("2026-11-20T18:33:11.5587572Z")
		if err != nil {
			t.Fatal(err)
		}
		instance := history.OrchestrationInstance{InstanceID: "inst2", ExecutionID: "5d8fdef717d349cd843fe1c2d10ac273"}
		want := &Envelope{
			ActivityID: uuid.MustParse("47274abc-955b-4704-aff1-b15b942f62c0"),
			Message: &provider.TaskMessage{
				Event: &history.ExecutionStarted{
					Header:     history.Header{EventID: -1, Timestamp: at},
					Instance:   instance,
					Name:       "HelloSeq",
					Version:    "2.0",
					Input:      new(`"x"`),
					Tags:       map[string]string{"t1": "v1"},
					Generation: new(0),
				},
				Target: instance,
			},
			SequenceNumber: 1,
			Sender:         &history.OrchestrationInstance{},
		}
		if diff := cmp.Diff(got, want); diff != "" {
			t.Errorf("envelope (-got +want):\n%s", diff)
		}
	}
	recordings.WantCount(t, "messages of the data-contract serializer", found, 1)
}

// The encoded messages are valid JSON.
func TestMessages_AreValidJSON(t *testing.T) {
	for _, m := range recordings.Messages(t) {
		env, err := DecodeEnvelope(m.Text)
		if err != nil {
			t.Fatal(err)
		}
		text, err := EncodeEnvelope(env)
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(text) {
			t.Errorf("%s: not JSON: %s", m.Request, text)
		}
	}
}
