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

// While a release runs, the scheduler decides when the partition's owner ends. The worker's next request must not depend
// on it; otherwise a seed of a simulation does not repeat.
func TestRoster_IgnoresAReleaseUntilItHasEnded(t *testing.T) {
	h := &Hub{partitions: []*partitionHandle{{number: 0}, {number: 1}}} // without owners
	r := roster{listener: listener{hub: h}, hasReported: true, reported: []int{1}}
	h.partitions[1].leaving.Store(true)
	if r.isOutdated() {
		t.Error("the heartbeat is outdated while the release runs")
	}
	h.partitions[1].leaving.Store(false)
	if !r.isOutdated() {
		t.Error("the heartbeat is not outdated after the release")
	}
}
