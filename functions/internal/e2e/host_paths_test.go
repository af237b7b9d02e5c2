//go:build unix

package e2e_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/handler/processtest"
)

// The test checks the statements of handler/README.md about escaped characters in instance IDs of starts,
// with the real host in each mode.
func TestHost_InvalidInstanceIDsAreRefused(t *testing.T) {
	processtest.SkipInShortRuns(t)
	t.Parallel()
	requireFunc(t)
	const refused, accepted, nowhere = http.StatusBadRequest, http.StatusAccepted, http.StatusNotFound
	type outcome struct {
		status int
		says   string
	}
	starts := []struct {
		path       string // the text in the place of the ID
		want       outcome
		forwarding outcome // if different in forwarding mode
	}{
		{"p%20q", outcome{accepted, `"id":"p q"`}, outcome{}},
		{"a%2Fb", outcome{refused, `contains '/'`}, outcome{}},
		{"a%252Fb", outcome{refused, `contains '/'`}, outcome{}},
		{"a%5Cb", outcome{refused, `contains '\\\\'`}, outcome{nowhere, ""}},
		{"c%23b", outcome{refused, `contains '#'`}, outcome{accepted, `"id":"c"`}},
		{"d%3Fb", outcome{refused, `contains '?'`}, outcome{accepted, `"id":"d"`}},
	}
	for _, mode := range []string{"proxying", "forwarding", "wrapping"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			root := newRoot(t, newHub(), "", nil)
			setCustomHandler(t, root, map[string]any{"enableProxyingHttpRequest": mode == "proxying", "enableForwardingHttpRequest": mode != "wrapping"})
			a := startHost(t, e2eApp, root)
			for _, start := range starts {
				want := start.want
				if mode == "forwarding" && start.forwarding.status != 0 {
					want = start.forwarding
				}
				got := a.call(http.MethodPost, "/api/durabletask/orchestrators/Steps/"+start.path, nil)
				if got.status != want.status || !strings.Contains(got.body, want.says) {
					t.Errorf("a start of %s: %d %s, want %d with %s", start.path, got.status, got.body, want.status, want.says)
				}
			}
			if got := a.call(http.MethodGet, "/api/durabletask/instances/a%2Fb", nil); got.status != nowhere {
				t.Errorf("status of a%%2Fb: %d %s, want 404", got.status, got.body)
			}
			// The URLs in the response of a start lead to its instance.
			got := a.call(http.MethodPost, "/api/durabletask/orchestrators/Steps/u%25%20%C3%A9", nil)
			if got.status != accepted {
				t.Fatalf("%d %s", got.status, got.body)
			}
			if got = a.call(http.MethodGet, decode[checkStatus](t, got.body).StatusQueryGetURI, nil); !strings.Contains(got.body, `"instanceId":"u% é"`) {
				t.Errorf("the status of the instance is %d %s", got.status, got.body)
			}
		})
	}
}
