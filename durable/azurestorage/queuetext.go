package azurestorage

import (
	"encoding/base64"
	"fmt"
	"strings"
)

// QueueEncoding says how the text of a queue message holds the JSON. Readers
// tell the two apart by themselves, but .NET workers and clients before version
// 2.0.0 of DurableTask.AzureStorage understand Base64 only.
type QueueEncoding int

// The encodings.
const (
	UTF8   QueueEncoding = iota // the JSON itself; the default
	Base64                      // standard Base64 of the JSON, with padding
)

// String returns the name that .NET gives the encoding.
func (e QueueEncoding) String() string {
	switch e {
	case UTF8:
		return "UTF8"
	case Base64:
		return "Base64"
	}
	return fmt.Sprintf("QueueEncoding(%d)", int(e))
}

// encodeQueueText returns the text of a queue message that holds json.
func encodeQueueText(json []byte, enc QueueEncoding) string {
	if enc == Base64 {
		return base64.StdEncoding.EncodeToString(json)
	}
	return string(json)
}

// decodeQueueText returns the JSON in the text of a queue message: the text
// itself if it begins with a brace, else Base64
// (DurableTask.AzureStorage/MessageManager.cs, DeserializeQueueMessageAsync).
func decodeQueueText(text string) ([]byte, error) {
	if strings.HasPrefix(text, "{") {
		return []byte(text), nil
	}
	json, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil {
		return nil, fmt.Errorf("decode message text that is not JSON: %w", err)
	}
	return json, nil
}
