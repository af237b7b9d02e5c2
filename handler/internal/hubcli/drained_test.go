package hubcli_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/hubcli"
)

type answering http.HandlerFunc

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	a(w, r)
	return w.Result(), nil
}

func TestDrained_FailsForEachKindOfWorkInFlight(t *testing.T) {
	t.Parallel()
	const none = "[]"
	for name, tt := range map[string]struct {
		live, entities, scale string
		scaleStatus, exit     int
		says                  string
	}{
		"an empty hub":               {none, none, `{"workerCount":1}`, 200, 0, "The hub is drained"},
		"idle entities":              {`[{"instanceId":"@c@a"}]`, `[{"instanceId":"@c@a","customStatus":{"entityExists":true}}]`, `{}`, 200, 0, "The hub is drained"},
		"a hub in a local file":      {none, none, `{"Message":"no"}`, 501, 1, "not known whether the hub is drained: its storage, such as a local file"},
		"an instance in such a file": {`[{"instanceId":"i"}]`, none, `{"Message":"no"}`, 501, 1, "have not ended: 1. Messages: not known."},
		"an instance":                {`[{"instanceId":"i"}]`, none, `{}`, 200, 1, "have not ended: 1."},
		"a hidden message":           {none, none, `{"storedMessageCount":1}`, 200, 1, "Messages: 1."},
		"messages without an owner":  {none, none, `{"controlQueueLengths":[0,2],"workItemQueueLength":1}`, 200, 1, "Messages: 3."},
		"a locked entity":            {none, `[{"instanceId":"@c@a","customStatus":{"lockedBy":"i"}}]`, `{}`, 200, 1, "Locked entities: 1."},
		"an operation in a queue":    {none, `[{"instanceId":"@c@a","customStatus":{"queueSize":3}}]`, `{}`, 200, 1, "queued operations: 1."},
		"a hub that does not answer": {none, none, `{"Message":"later"}`, 500, 1, "later"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs strings.Builder
			api := answering(func(w http.ResponseWriter, r *http.Request) {
				text := tt.live
				switch {
				case strings.HasSuffix(r.URL.Path, "/scale"):
					w.WriteHeader(tt.scaleStatus)
					text = tt.scale
				case r.URL.Query().Get("instanceIdPrefix") == "@":
					text = tt.entities
				}
				_, _ = io.WriteString(w, text)
			})
			p := hubcli.Program{
				Name: "app hub", Stdout: &out, Stderr: &errs,
				Open: func(context.Context) (*hubcli.Target, error) {
					return &hubcli.Target{Client: &http.Client{Transport: api}, Base: "http://app/api/durabletask"}, nil
				},
			}
			if code := p.Run(t.Context(), []string{"drained"}); code != tt.exit || !strings.Contains(out.String()+errs.String(), tt.says) {
				t.Errorf("exit %d, want %d and %q:\n%s%s", code, tt.exit, tt.says, &out, &errs)
			}
		})
	}
}
