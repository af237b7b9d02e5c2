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

// A keeperHub has messages that cannot be decoded.
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
		t.Errorf("a caller without the key gets %s", w.Body)
	}
	if w := call(s, "POST", managed+"undecodable/retry", ""); w.Code != http.StatusUnauthorized {
		t.Errorf("a caller without the key gets status %d", w.Code)
	}
	if w := call(s, "POST", managed+"undecodable/retry?code="+theKey, ""); w.Code != http.StatusOK || strings.TrimSpace(w.Body.String()) != `{"messagesPutBack":25}` {
		t.Errorf("the retry returned %d %s", w.Code, w.Body)
	}
	if w := call(s, "GET", managed+"health/ready?code="+theKey, ""); strings.Contains(w.Body.String(), "undecodable") {
		t.Errorf("there are none, and health says %s", w.Body)
	}
}

// A blockedHub has partitions that its worker cannot serve.
type blockedHub struct {
	*fakeHub
	blocked []provider.BlockedPartition
	all     bool
}

func (h *blockedHub) BlockedPartitions() ([]provider.BlockedPartition, bool) { return h.blocked, h.all }

func TestReady_ShowsBlockedPartitionsAndFailsIfNoneIsServed(t *testing.T) {
	t.Parallel()
	hub := &blockedHub{fakeHub: newFakeHub(), blocked: []provider.BlockedPartition{
		{Partition: 2, Problem: provider.PartitionNotOpened, Cause: "blob p02/log- is damaged; AccountKey=secret", Since: time.Unix(0, 0)},
	}}
	cfg := fakeConfig(t, hub)
	cfg.Key = theKey
	s := readyServer(t, App{}, cfg)
	const partition = `"blockedPartitions":{"count":1,"partitions":[{"partition":2,"problem":"notOpened","reason":"blob p02/log- is damaged; AccountKey=***","since":"1970-01-01T00:00:00Z"}]}`
	w := call(s, "GET", managed+"health/ready?code="+theKey, "")
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"status":"ready"`) || !strings.Contains(w.Body.String(), partition) {
		t.Errorf("one partition is blocked: %d %s, want 200 with %s", w.Code, w.Body, partition)
	}
	if w := call(s, "GET", managed+"health/ready", ""); strings.Contains(w.Body.String(), "blocked") {
		t.Errorf("a caller without the key gets %s", w.Body)
	}
	hub.all = true
	w = call(s, "GET", managed+"health/ready?code="+theKey, "")
	const reason = `"reasons":["this app can serve none of its partitions of task hub`
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), reason) || !strings.Contains(w.Body.String(), partition) {
		t.Errorf("all partitions are blocked: %d %s, want 503 with %s and %s", w.Code, w.Body, reason, partition)
	}
}
