package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A failingHub fails the list requests with the numbers in fails.
type failingHub struct {
	provider.Provider
	lists atomic.Int64
	fails map[int64]bool
}

func (h *failingHub) Instances(ctx context.Context, q provider.Query) (*provider.Page, error) {
	if h.fails[h.lists.Add(1)] {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: context.DeadlineExceeded}
	}
	return h.Provider.Instances(ctx, q)
}

func openHub(t *testing.T) provider.Provider {
	t.Helper()
	hub, err := embedded.Open(filepath.Join(t.TempDir(), "hub.db"), embedded.Config{Relaxed: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hub.Close() })
	return hub
}

// A bulk action that an error stops keeps its counts and its position, so that the user can continue it.
func TestInstances_BulkActionsContinueAfterAnError(t *testing.T) {
	t.Parallel()
	hub := &failingHub{Provider: openHub(t)}
	a := newHubAppOn(t, hub, usual()...)
	for i := range 130 {
		a.await(a.start("Quick", fmt.Sprintf("!%03d", i)), history.Completed)
	}
	first := hub.lists.Load() + 1 // the preview
	hub.fails = map[int64]bool{first + 2: true, first + 3: true}
	failed, steps := "", 0
	form := url.Values{"action": {"restart"}, "scope": {"filter"}, "name": {"Quick"}}
	preview := a.post("instances/preview", form).Body.String()
	page := a.post("instances/run", url.Values{"state": {stateOf(preview)}, "confirmed": {"1"}}).Body.String()
	for strings.Contains(page, "hx-post") && steps < 5 {
		w := a.post("instances/run", url.Values{"state": {stateOf(page)}}, "Hx-Request", "true")
		page = w.Body.String()
		if steps++; w.Code != http.StatusServiceUnavailable {
			continue
		}
		failed = page
		for _, want := range []string{
			"Stopped.", "100 restarted", "of 130", `<p class="error" role="alert">The storage of the task hub`, "<button>Continue</button>", "Back to the list",
		} {
			if !strings.Contains(failed, want) {
				t.Errorf("the answer to the failed step lacks %s: %s", want, failed)
			}
		}
		if strings.Contains(failed, "hx-post") || strings.Contains(failed, "step in flight") {
			t.Errorf("the failed step continues, or is in flight: %s", failed)
		}
		if w = a.post("instances/run", url.Values{"state": {stateOf(failed)}, "step": {"1"}}); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "100 restarted") {
			t.Errorf("a page without scripts: %d %s", w.Code, w.Body)
		}
		page = a.post("instances/run", url.Values{"state": {stateOf(failed)}}).Body.String() // the button
	}
	w := a.post("instances/run", url.Values{"state": {`{"Action": "suspend", "Filter": {"From": "yesterday"}}`}, "step": {"1"}})
	if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "Stopped.") || !strings.Contains(w.Body.String(), "yesterday") {
		t.Errorf("a filter that is not valid: %d %s", w.Code, w.Body)
	}
	if failed == "" || !strings.Contains(page, "130 restarted.") {
		t.Errorf("after %d steps: %s", steps, page)
	}
}

// stateOf returns the state of a bulk action in a page.
func stateOf(page string) string { return attribute(page, `name="state" value="([^"]*)"`) }

// An idleHub has no worker. It counts terminations. From the time in stalls, reads of an instance end only
// with their context. From the time in broken, they fail.
type idleHub struct {
	provider.Provider
	broken time.Time
	sent   atomic.Int64
	stalls atomic.Pointer[time.Time]
}

func (*idleHub) NextOrchestration(ctx context.Context) (*provider.OrchestrationWorkItem, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (h *idleHub) Send(ctx context.Context, m provider.TaskMessage) error {
	if m.Event.Type() == history.TypeExecutionTerminated {
		h.sent.Add(1)
	}
	return h.Provider.Send(ctx, m)
}

func (h *idleHub) Instance(ctx context.Context, id string, fetch provider.Fetch) (*provider.InstanceState, error) {
	if time.Now().After(h.broken) {
		return nil, errors.New("the request takes too long")
	}
	if at := h.stalls.Load(); at != nil && !time.Now().Before(*at) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return h.Provider.Instance(ctx, id, fetch)
}

func TestInstances_TerminationWithChildrenEndsWithoutAWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub := &idleHub{Provider: openHub(t), broken: time.Now().Add(time.Hour)}
		a := newHubAppOn(t, hub, usual()...)
		const n = 25
		for i := range n {
			a.start("Waits", fmt.Sprintf("w-%02d", i))
		}
		const notice = "The instance will be terminated when its worker handles the request. Some of its children may still run, because no worker ended their parent within 60 seconds. Start a worker, then terminate the remaining children."
		for _, stalls := range []bool{false, true} {
			if from := time.Now(); stalls {
				at := from.Add(familyTime - time.Second)
				hub.stalls.Store(&at)
			}
			from := time.Now()
			w := a.post("instance/act", url.Values{"action": {"terminate"}, "id": {"w-00"}, "option": {"1"}})
			cookie, _ := url.QueryUnescape(w.Header().Get("Set-Cookie"))
			if took := time.Since(from); took != familyTime || w.Code != http.StatusSeeOther || !strings.Contains(cookie, notice) {
				t.Errorf("storage stalls: %t: %v %d %s %s", stalls, took, w.Code, cookie, w.Body)
			}
			hub.stalls.Store(nil)
		}
		hub.sent.Store(0)
		from := time.Now()
		last, steps := a.bulk(url.Values{"action": {"terminate"}, "scope": {"filter"}}, url.Values{"option": {"1"}})
		if took := time.Since(from); took > familyTime+time.Second || steps != 1 || !strings.Contains(last, "0 terminated, 25 failed") || !strings.Contains(last, `<p class="error">w-`) || !strings.Contains(last, "no worker ended their parent") {
			t.Errorf("after %v and %d steps: %s", took, steps, last)
		}
		if sent := hub.sent.Load(); sent != n {
			t.Errorf("%d instances were terminated, want %d", sent, n)
		}
	})
}
