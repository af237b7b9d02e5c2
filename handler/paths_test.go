package handler

import (
	"net/http"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// Observed on host 4.1045: it escapes the slashes of a proxied path twice.
func TestPaths_NamesOfEventsKeepTheirSlashesBehindTheHost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, path, header string
		standalone         bool
		want               string
	}{
		{"proxied", "a%252Fb%20c", "X-Ms-Invocation-Id", false, "a/b c"},
		{"forwarded", "a%2Fb%20c", "X-Other", false, "a/b c"},
		{"forwarded, with a percent sign", "a%252Fb", "X-Other", false, "a%2Fb"},
		{"standalone", "a%252Fb", "X-Ms-Invocation-Id", true, "a%2Fb"},
	} {
		hub := newFullHub()
		cfg := fakeConfig(t, hub)
		cfg.BehindHost = !tt.standalone
		s := readyServer(t, App{}, cfg)
		w := call(s, http.MethodPost, managed+"instances/running/raiseEvent/"+tt.path, "1", tt.header, "x", "Content-Type", "application/json")
		if w.Code != http.StatusAccepted || len(hub.sent) != 1 {
			t.Errorf("%s: %d %s", tt.name, w.Code, w.Body)
			continue
		}
		if e, ok := hub.sent[0].Event.(*history.EventRaised); !ok || e.Name != tt.want {
			t.Errorf("%s: the event is %+v, want %s", tt.name, hub.sent[0].Event, tt.want)
		}
	}
}

// An ID with a slash is refused in every mode of the host. An instance whose ID contains "%2F" can be
// read behind a proxying host.
func TestPaths_IDsWithASlashAreRefusedInEachMode(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, method, path, header string
		standalone                 bool
		code                       int
		says                       string
	}{
		{"a start, proxied", http.MethodPost, "orchestrators/Greet/a%252Fb", "X-Ms-Invocation-Id", false, 400, `contains '/'`},
		{"a start, proxied in lower case", http.MethodPost, "orchestrators/Greet/a%252fb", "X-Ms-Invocation-Id", false, 400, `contains '/'`},
		{"a start, forwarded", http.MethodPost, "orchestrators/Greet/a%2Fb", "X-Other", false, 400, `contains '/'`},
		{"a start, standalone", http.MethodPost, "orchestrators/Greet/a%2Fb", "X-Other", true, 400, `contains '/'`},
		{"a start with a percent sign, standalone", http.MethodPost, "orchestrators/Greet/a%252Fb", "X-Ms-Invocation-Id", true, 202, `"id":"a%2Fb"`},
		{"a signal, proxied", http.MethodPost, "entities/Counter/a%252Fb?op=add", "X-Ms-Invocation-Id", false, 400, `contains '/'`},
		{"a signal, forwarded", http.MethodPost, "entities/Counter/a%2Fb?op=add", "X-Other", false, 400, `contains '/'`},
		{"a deletion, proxied", http.MethodDelete, "entities/Counter/a%252Fb", "X-Ms-Invocation-Id", false, 400, `contains '/'`},
		{"a question, proxied", http.MethodGet, "instances/a%252Fb", "X-Ms-Invocation-Id", false, 404, ""},
		{"a question, forwarded", http.MethodGet, "instances/a%2Fb", "X-Other", false, 404, ""},
		{"a question about one that is there, proxied", http.MethodGet, "instances/there%252Fis", "X-Ms-Invocation-Id", false, 202, `"instanceId":"there%2Fis"`},
	} {
		hub := newFullHub()
		hub.put("there%2Fis", history.Running, nil)
		cfg := fakeConfig(t, hub)
		cfg.BehindHost = !tt.standalone
		s := readyServer(t, App{}, cfg)
		w := call(s, tt.method, managed+tt.path, "", tt.header, "x")
		if w.Code != tt.code || !strings.Contains(w.Body.String(), tt.says) {
			t.Errorf("%s: %d %s, want %d with %s", tt.name, w.Code, w.Body, tt.code, tt.says)
		}
	}
}
