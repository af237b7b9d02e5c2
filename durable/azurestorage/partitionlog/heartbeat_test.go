package partitionlog

import (
	"strings"
	"testing"
)

// A heartbeat is stored in metadata, which the service transfers in HTTP headers.
func TestASCII_ReplacesWhatAnHTTPHeaderCannotContain(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "app v1.2.3, go1.26": "app v1.2.3, go1.26", "ä\n\x7fb": "???b", strings.Repeat("ä", 300): strings.Repeat("?", 200),
	} {
		if got := ascii(text, 200); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}
