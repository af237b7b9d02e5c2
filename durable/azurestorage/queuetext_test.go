package azurestorage

import "testing"

// DurableTask.AzureStorage/MessageManager.cs, DeserializeQueueMessageAsync.
func TestDecodeQueueText_TellsTheEncodingsApart(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"JSON", `{"a":"é"}`, `{"a":"é"}`},
		{"Base64", "eyJhIjoiw6kifQ==", `{"a":"é"}`},
		{"Base64 with space around it", " eyJhIjoiw6kifQ==\r\n", `{"a":"é"}`},
	} {
		got, err := decodeQueueText(c.text)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %q, %v, want %q", c.name, got, err, c.want)
		}
	}
	for _, text := range []string{"eyJhIjoiw6kifQ", "[1]", "\uFEFF{}"} {
		if got, err := decodeQueueText(text); err == nil {
			t.Errorf("of %q: %q", text, got)
		}
	}
}

func TestQueueEncoding_HasTheNamesOfDotNet(t *testing.T) {
	for e, want := range map[QueueEncoding]string{UTF8: "UTF8", Base64: "Base64", 7: "QueueEncoding(7)"} {
		if got := e.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if got := encodeQueueText([]byte(`{"a":"é"}`), Base64); got != "eyJhIjoiw6kifQ==" {
		t.Errorf("Base64 is %q", got)
	}
	if got := encodeQueueText([]byte(`{"a":"é"}`), UTF8); got != `{"a":"é"}` {
		t.Errorf("UTF-8 is %q", got)
	}
}
