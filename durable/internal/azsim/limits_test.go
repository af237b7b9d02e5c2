package azsim

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// Azurite has the same limit of blocks, but reaching it takes minutes. It allows large blocks
// with all service versions.
func TestAppendBlob_LimitsTheNumberAndSizeOfBlocks(t *testing.T) {
	const older, newer = "2022-10-31", "2022-11-02"
	for _, tt := range []struct {
		configured, blocks, length int
		version, want              string
	}{
		{0, 49_999, 1, newer, ""},
		{0, 50_000, 1, newer, "BlockCountExceedsLimit"},
		{3, 2, 1, newer, ""},
		{3, 3, 1, newer, "BlockCountExceedsLimit"},
		{0, 0, 4 << 20, older, ""},
		{0, 0, 4<<20 + 1, older, "RequestBodyTooLarge"},
		{0, 0, 4<<20 + 1, newer, ""},
	} {
		t.Run(fmt.Sprintf("%d bytes after %d of %d blocks, version %s", tt.length, tt.blocks, tt.configured, tt.version), func(t *testing.T) {
			a := New(Config{MaxBlocks: tt.configured})
			a.containers["c"] = &container{blobs: map[string]*blob{"b": {name: "b", kind: appendBlob, blocks: tt.blocks}}}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "https://sim.blob.core.windows.net/c/b?comp=appendblock",
				strings.NewReader(strings.Repeat("x", tt.length)))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("x-ms-version", tt.version)
			answer, err := a.Worker("w").Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			if got := answer.Header.Get("x-ms-error-code"); got != tt.want {
				t.Errorf("status %s with code %q; want code %q", answer.Status, got, tt.want)
			}
		})
	}
}
