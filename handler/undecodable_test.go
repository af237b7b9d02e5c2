package handler

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A keeperHub has messages that nobody can decode.
type keeperHub struct {
	*fakeHub
	messages []provider.UndecodableMessage
}

func (h *keeperHub) Undecodable() []provider.UndecodableMessage { return h.messages }

func (h *keeperHub) RetryUndecodable(context.Context) (int, error) {
	n := len(h.messages)
	h.messages = nil
	return n, nil
}

func TestReady_ShowsMessagesThatCannotBeDecoded(t *testing.T) {
	t.Parallel()
	const secret = "0123456789abcdefghijABCDEFGHIJ0123456789+/abcdefghijABCDEFGHIJ0123456789abcdefghij=="
	hub := &keeperHub{fakeHub: newFakeHub()}
	for i := range 25 {
		hub.messages = append(hub.messages, provider.UndecodableMessage{
			Queue: "hub-control-00", ID: fmt.Sprint(i), Cause: "AccountKey=" + secret, Since: time.Now(), SetAside: i == 0,
		})
	}
	cfg := fakeConfig(t, hub)
	cfg.Key = theKey
	s := readyServer(t, App{}, cfg)
	w := call(s, "GET", managed+"health/ready?code="+theKey, "")
	for _, want := range []string{`"status":"ready"`, `"count":25`, `"queue":"hub-control-00","messageId":"0"`, `"setAside":true`, `"messageId":"19"`} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s lacks %s", w.Body, want)
		}
	}
	if body := w.Body.String(); w.Code != http.StatusOK || strings.Contains(body, `"messageId":"20"`) || strings.Contains(body, secret) {
		t.Errorf("%d %s", w.Code, body)
	}
	if w := call(s, "GET", managed+"health/ready", ""); strings.Contains(w.Body.String(), "undecodable") {
		t.Errorf("somebody without the key is told %s", w.Body)
	}
	if w := call(s, "POST", managed+"undecodable/retry", ""); w.Code != http.StatusUnauthorized {
		t.Errorf("somebody without the key is answered %d", w.Code)
	}
	if w := call(s, "POST", managed+"undecodable/retry?code="+theKey, ""); w.Code != http.StatusOK || strings.TrimSpace(w.Body.String()) != `{"messagesPutBack":25}` {
		t.Errorf("they are put back with %d %s", w.Code, w.Body)
	}
	if w := call(s, "GET", managed+"health/ready?code="+theKey, ""); strings.Contains(w.Body.String(), "undecodable") {
		t.Errorf("there are none, and health says %s", w.Body)
	}
}
