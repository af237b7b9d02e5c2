package wire

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/recordings"
)

// A message that can be decoded can be encoded, and decoding the result gives the same message.
func FuzzDecodeEnvelope(f *testing.F) {
	seen := map[int]bool{}
	for _, m := range recordings.Messages(f) {
		if n := len(m.Text); !seen[n] { // one message of each length is sufficient
			seen[n] = true
			f.Add(m.Text)
		}
	}
	for _, line := range recordings.CoreTools(f) {
		if line.Queue != "" {
			f.Add(line.Text)
		}
	}
	f.Add(minimal)
	f.Fuzz(func(t *testing.T, text string) {
		env, err := DecodeEnvelope(text)
		if err != nil {
			return
		}
		first, err := EncodeEnvelope(env)
		if err != nil {
			t.Fatalf("decoded message cannot be encoded: %v", err)
		}
		if !json.Valid(first) {
			t.Fatalf("not JSON: %s", first)
		}
		again, err := DecodeEnvelope(string(first))
		if err != nil {
			t.Fatalf("encoded data cannot be decoded: %v\n%s", err, first)
		}
		second, err := EncodeEnvelope(again)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first, second) {
			t.Errorf("first  %s\nsecond %s", first, second)
		}
	})
}

func FuzzDecodeHistoryRow(f *testing.F) {
	addRows(f, "History")
	for ordinal, ev := range oneOfEach() {
		row := EncodeHistoryRow(ev, "i", ordinal, "e")
		f.Add(row.JSON())
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		row, err := DecodeHistoryRow(raw)
		if err != nil || row.IsSentinel() {
			return
		}
		for _, b := range row.Blobs() {
			row.Resolve(b.Column, JSONNull)
		}
		ev, err := row.Event()
		if err != nil {
			return
		}
		first := EncodeHistoryRow(ev, "i", 0, row.ExecutionID)
		again, err := DecodeHistoryRow(first.JSON())
		if err != nil {
			t.Fatalf("encoded data cannot be decoded: %v\n%s", err, first.JSON())
		}
		if ev, err = again.Event(); err != nil {
			t.Fatalf("encoded data cannot be decoded: %v\n%s", err, first.JSON())
		}
		second := EncodeHistoryRow(ev, "i", 0, again.ExecutionID)
		if !bytes.Equal(first.JSON(), second.JSON()) {
			t.Errorf("first  %s\nsecond %s", first.JSON(), second.JSON())
		}
	})
}

func FuzzDecodeInstanceRow(f *testing.F) {
	addRows(f, "Instances")
	for _, line := range recordings.CoreTools(f) {
		if line.Table != "" {
			f.Add([]byte(line.Row))
		}
	}
	const container = "http://127.0.0.1:31710/devstoreaccount1/hub-largemessages"
	f.Add([]byte(`{"PartitionKey":"i","Output":"` + container + `/a%2520b%3Fc/Output-1.json.gz"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		row, err := DecodeInstanceRow(raw)
		if err != nil {
			return
		}
		if row.State.Status < -1 || row.State.CustomStatus != nil && *row.State.CustomStatus == JSONNull {
			t.Errorf("status %d, custom status %v", row.State.Status, row.State.CustomStatus)
		}
		for _, v := range []*string{row.State.Input, row.State.Output} {
			if v == nil {
				continue
			}
			if name, ok := BlobNameFromURL(container, *v); ok {
				if again, ok := BlobNameFromURL(container, BlobURL(container, name)); !ok || again != name {
					t.Errorf("%q refers to the blob %q, but the blob's URL is %q", *v, name, again)
				}
			}
		}
	})
}

func FuzzDecodePartitionRow(f *testing.F) {
	addRows(f, "Partitions")
	f.Fuzz(func(t *testing.T, raw []byte) {
		row, err := DecodePartitionRow(raw)
		if err != nil {
			return
		}
		first := row.Row()
		again, err := DecodePartitionRow(first.JSON())
		if err != nil {
			t.Fatalf("encoded data cannot be decoded: %v\n%s", err, first.JSON())
		}
		second := again.Row()
		if !bytes.Equal(first.JSON(), second.JSON()) {
			t.Errorf("first  %s\nsecond %s", first.JSON(), second.JSON())
		}
	})
}

func addRows(f *testing.F, table string) {
	f.Helper()
	seen := map[int]bool{}
	for _, rec := range recordings.Rows(f) {
		if n := len(rec.Raw); rec.Table == table && !seen[n] {
			seen[n] = true
			f.Add(rec.Raw)
		}
	}
}
