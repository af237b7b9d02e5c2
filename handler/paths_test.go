package handler

import (
	"net/http"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// Seen on the host 4.1045: a proxied path has its slashes escaped twice.
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
