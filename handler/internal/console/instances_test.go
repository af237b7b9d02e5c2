package console

import (
	"context"
	"errors"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/scattered"
	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/taskhub"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
	"github.com/google/go-cmp/cmp"
	"github.com/labstack/echo/v4"
)

// A hubApp is a console of a hub with a worker.
type hubApp struct {
	testing.TB
	echo    *echo.Echo
	client  *durable.Client
	console *Console
	cookie  string
	token   string
}

const (
	base     = "/api/durabletask/console"
	theKey   = "a key that nobody guesses"
	theOther = "another one, for those who only read"
)

func newHubApp(t testing.TB, functions ...*durable.Registration) *hubApp {
	t.Helper()
	hub, err := embedded.Open(filepath.Join(t.TempDir(), "hub.db"), embedded.Config{Relaxed: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := hub.Close(); err != nil {
			t.Error(err)
		}
	})
	return newHubAppOn(t, hub, functions...)
}

// newHubAppOn is like newHubApp, on another hub.
func newHubAppOn(t testing.TB, hub provider.Provider, functions ...*durable.Registration) *hubApp {
	t.Helper()
	logger := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	registry := durable.NewRegistry(functions...)
	front := web.New(web.Config{Address: "127.0.0.1:80", RoutePrefix: "api", MaxBody: 8 << 20, MaxBodies: 64 << 20})
	store := taskhub.Client{Hub: hub, Log: logger, Unreadable: new(taskhub.UnreadableLog)}
	a := &hubApp{TB: t, echo: echo.New(), client: durable.NewClient(store, registry)}
	worker := durable.NewWorker(hub, registry, durable.Config{Logger: logger})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- worker.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	state := taskhub.NewReadiness()
	state.SetReady()
	draining := make(chan struct{})
	api := management.New(management.Config{TaskHub: "MyHub", Access: management.Access{Key: theKey, ReadKey: theOther}, Configuration: func() (none management.Configuration) { return none }}, front, state, draining, logger)
	c := New(Config{TaskHub: "MyHub", API: api, TraceURL: "https://traces.example/{traceId}/{spanId}"}, front, state, draining, logger)
	opened := management.Hub{Client: a.client, Registry: registry, Hub: store, Worker: worker}
	api.Open(opened)
	c.Open(opened)
	c.AddTo(a.echo)
	a.console = c
	a.signIn(theKey)
	return a
}

// signIn signs in with a key.
func (a *hubApp) signIn(key string) {
	a.Helper()
	w := a.send(http.MethodPost, "login", url.Values{"code": {key}}, nil)
	a.cookie, _, _ = strings.Cut(w.Header().Get("Set-Cookie"), ";")
	page := a.get("instances")
	a.token = attribute(page, `name="csrf" value="([^"]+)"`)
	if a.token == "" {
		a.Fatalf("no token in %s", page)
	}
}

// attribute returns the first group of an expression in a page, decoded.
func attribute(page, expression string) string {
	if m := regexp.MustCompile(expression).FindStringSubmatch(page); m != nil {
		return html.UnescapeString(m[1])
	}
	return ""
}

func (a *hubApp) send(method, path string, form url.Values, header http.Header) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://127.0.0.1"+base+"/"+path, strings.NewReader(form.Encode()))
	for name := range header {
		r.Header.Set(name, header.Get(name))
	}
	if form != nil {
		r.Header.Set("Content-Type", echo.MIMEApplicationForm)
		r.Header.Set("Origin", "http://127.0.0.1")
	}
	if a.cookie != "" {
		r.Header.Set("Cookie", a.cookie)
	}
	w := httptest.NewRecorder()
	a.echo.ServeHTTP(w, r)
	return w
}

// get returns a page or part. It fails the test unless the status is 200.
func (a *hubApp) get(path string) string {
	a.Helper()
	w := a.send(http.MethodGet, path, nil, nil)
	if w.Code != http.StatusOK {
		a.Fatalf("GET %s: %d %s", path, w.Code, w.Body)
	}
	return w.Body.String()
}

// part is like get, with a request of htmx.
func (a *hubApp) part(path string) string {
	a.Helper()
	w := a.send(http.MethodGet, path, nil, http.Header{"Hx-Request": {"true"}})
	if w.Code != http.StatusOK {
		a.Fatalf("GET %s: %d %s", path, w.Code, w.Body)
	}
	return w.Body.String()
}

// post sends a form with the session's token.
func (a *hubApp) post(path string, form url.Values, header ...string) *httptest.ResponseRecorder {
	form.Set("csrf", a.token)
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return a.send(http.MethodPost, path, form, h)
}

// start starts an instance.
func (a *hubApp) start(name, id string, opts ...durable.StartOption) string {
	a.Helper()
	if _, err := a.client.StartByName(a.Context(), name, nil, append(opts, durable.InstanceID(id))...); err != nil {
		a.Fatal(err)
	}
	return id
}

// await waits until an instance has a status.
func (a *hubApp) await(id string, want history.RuntimeStatus) *durable.InstanceState {
	a.Helper()
	var s *durable.InstanceState
	patience.Until(a, fmt.Sprintf("instance %s is %s", id, want), func() bool {
		var err error
		s, err = a.client.Status(a.Context(), durable.InstanceID(id), durable.Fetch{Input: true, Output: true})
		if err == nil && s.Status != want && s.Status.IsTerminal() {
			a.Fatalf("instance %s is %s, want %s", id, s.Status, want)
		}
		return err == nil && s.Status == want
	})
	return s
}

// waits sets a custom status and waits for an event.
func waits(ctx *durable.Context, _ durable.Void) (string, error) {
	ctx.SetCustomStatus("<i>waiting</i>")
	return durable.Event[string]("Approval").Wait(ctx).Await()
}

// quick completes at once.
func quick(*durable.Context, durable.Void) (string, error) { return "done", nil }

// broken fails.
func broken(*durable.Context, durable.Void) (string, error) { return "", errors.New("it <b>broke</b>") }

func usual() []*durable.Registration {
	return []*durable.Registration{
		durable.Orchestrator("Waits", waits), durable.Orchestrator("Quick", quick), durable.Orchestrator("Broken", broken),
	}
}

var idLinks = regexp.MustCompile(`<td class="id"><a href="[^"]*">([^<]*)</a>`)

// listed returns the instance IDs on a page of the list.
func listed(page string) (ids []string) {
	for _, m := range idLinks.FindAllStringSubmatch(page, -1) {
		ids = append(ids, html.UnescapeString(m[1]))
	}
	return ids
}

// follow returns the path of a link or form that an expression finds in a page, or "".
func follow(page, expression string) string {
	return strings.TrimPrefix(attribute(page, expression), base+"/")
}

const nextPage = `rel="next" href="([^"]+)"`

func TestInstances_PagesSkipNothing(t *testing.T) {
	t.Parallel()
	a := newHubApp(t, usual()...)
	want, third := map[string]int{}, map[string]int{}
	for i := range 120 {
		tags := durable.Tags{"n": strconv.Itoa(i % 3)}
		if i == 119 {
			tags["last"] = ""
		}
		if id := a.start("Waits", fmt.Sprintf("i-%03d", i), tags); i%3 == 2 {
			third[id] = 1
		}
		want[fmt.Sprintf("i-%03d", i)] = 1
	}
	all := func(size int, filter string) map[string]int {
		seen := map[string]int{}
		for path := fmt.Sprintf("instances?size=%d%s", size, filter); path != ""; {
			page := a.get(path)
			ids := listed(page)
			if len(ids) > size && filter == "" || len(ids) >= 2*size || len(ids) == 0 {
				t.Errorf("a page of %d has %d instances", size, len(ids))
			}
			for _, id := range ids {
				seen[id]++
			}
			path = follow(page, nextPage)
		}
		return seen
	}
	for _, size := range []int{25, 50, 100, 500} {
		if d := cmp.Diff(want, all(size, "")); d != "" {
			t.Errorf("pages of %d: %s", size, d)
		}
		if ids := listed(a.get(fmt.Sprintf("instances?size=%d&tag=last", size))); len(ids) != 1 {
			t.Errorf("the first page of %d of those with the tag of the last has %q", size, ids)
		}
		if d := cmp.Diff(third, all(size, "&tag=n%3D2")); d != "" {
			t.Errorf("pages of %d of those with a tag: %s", size, d)
		}
	}
}

func TestInstances_AreFiltered(t *testing.T) {
	t.Parallel()
	a := newHubApp(t, usual()...)
	a.start("Waits", "a-1", durable.Tags{"team": "blue"}, durable.Version("1.0"))
	a.start("Waits", "a-2", durable.Tags{"team": "red"})
	a.start("Quick", "b-1")
	a.start("Broken", "b-2", durable.Tags{"team": "blue"})
	a.await("b-1", history.Completed)
	a.await("b-2", history.Failed)
	a.await("a-1", history.Running)
	a.await("a-2", history.Running)
	for query, want := range map[string]string{
		"": "a-1 a-2 b-1 b-2", "status=Running": "a-1 a-2", "status=Failed&status=Completed": "b-1 b-2", "status=Nonsense": "a-1 a-2 b-1 b-2",
		"name=Broken": "b-2", "prefix=a-": "a-1 a-2", "tag=team%3Dblue": "a-1 b-2", "tag=team": "a-1 a-2 b-2", "version=1.0": "a-1",
		"createdFrom=2999-01-01T00:00": "", "createdTo=2999-01-01T00:00": "a-1 a-2 b-1 b-2", "createdTo=2001-01-01": "", "name=Waits&tag=team%3Dred": "a-2",
	} {
		page := a.get("instances?" + query)
		ids := listed(page)
		slices.Sort(ids)
		if got := strings.Join(ids, " "); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
		filter, _ := url.ParseQuery(query)
		if again := filterOf(filterOf(filter).Values()); !cmp.Equal(again, filterOf(filter)) {
			t.Errorf("%s: the form would ask for %+v", query, again)
		}
	}
	if w := a.send(http.MethodGet, "instances?createdFrom=yesterday", nil, nil); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "yesterday") {
		t.Errorf("an invalid time: %d %s", w.Code, w.Body)
	}
	if w := a.send(http.MethodGet, "instances?continuation=nonsense", nil, nil); w.Code != http.StatusBadRequest {
		t.Errorf("an invalid continuation: %d %s", w.Code, w.Body)
	}
}

// bulk performs an action like the pages: preview, confirmation and steps. It returns the last part and
// the number of steps.
func (a *hubApp) bulk(form url.Values, confirm url.Values) (last string, steps int) {
	a.Helper()
	w := a.post("instances/preview", form)
	if w.Code != http.StatusOK {
		a.Fatalf("preview: %d %s", w.Code, w.Body)
	}
	confirm.Set("state", attribute(w.Body.String(), `name="state" value="([^"]*)"`))
	confirm.Set("confirmed", "1")
	page := a.post("instances/run", confirm).Body.String()
	for strings.Contains(page, "hx-post") {
		w := a.post("instances/run", url.Values{"state": {attribute(page, `name="state" value="([^"]*)"`)}}, "Hx-Request", "true")
		page = w.Body.String()
		if steps++; w.Code != http.StatusOK || steps > 50 {
			a.Fatalf("step %d: %d %s", steps, w.Code, page)
		}
	}
	return page, steps
}

func TestInstances_BulkActionsApplyToAllMatchingInstancesOnly(t *testing.T) {
	t.Parallel()
	a := newHubApp(t, usual()...)
	for i := range 230 {
		a.start("Waits", fmt.Sprintf("w-%03d", i), durable.Tags{"n": strconv.Itoa(i % 2)})
	}
	a.start("Quick", "q-1")
	a.await("q-1", history.Completed)
	for i := range 230 {
		a.await(fmt.Sprintf("w-%03d", i), history.Running)
	}
	all := func(action, filter string) url.Values {
		form, _ := url.ParseQuery(filter)
		form.Set("action", action)
		form.Set("scope", "filter")
		return form
	}
	count := func(status string) int {
		return len(listed(a.get("instances?size=500&status=" + status)))
	}
	last, steps := a.bulk(all("suspend", "tag=n%3D1&name=Waits"), url.Values{"reason": {"for now"}})
	if !strings.Contains(last, "115 suspended.") || steps != 3 {
		t.Errorf("suspend, after %d steps: %s", steps, last)
	}
	for i := 1; i < 230; i += 2 {
		a.await(fmt.Sprintf("w-%03d", i), history.Suspended)
	}
	if n := count("Running"); n != 115 {
		t.Errorf("%d instances still run, want 115", n)
	}
	selected := url.Values{"action": {"resume"}, "scope": {"selected"}, "id": {"w-001", "w-002", "w-003", "gone"}}
	if last, _ := a.bulk(selected, url.Values{}); !strings.Contains(last, "2 resumed, 2 skipped") {
		t.Errorf("resume: %s", last)
	}
	a.await("w-001", history.Running)
	a.await("w-003", history.Running)
	if last, _ := a.bulk(all("terminate", "prefix=w-"), url.Values{"reason": {"enough"}}); !strings.Contains(last, "230 terminated.") {
		t.Errorf("terminate: %s", last)
	}
	for i := range 230 {
		if s := a.await(fmt.Sprintf("w-%03d", i), history.Terminated); *s.Output != `"enough"` && *s.Output != "enough" {
			t.Fatalf("the output is %s", *s.Output)
		}
	}
	if last, _ := a.bulk(all("restart", ""), url.Values{}); !strings.Contains(last, "231 restarted.") {
		t.Errorf("restart: %s", last)
	}
	if last, _ := a.bulk(all("purge", "status=Terminated"), url.Values{}); !strings.Contains(last, "230 purged.") {
		t.Errorf("purge: %s", last)
	}
	if n := count("Terminated"); n != 0 {
		t.Errorf("%d terminated instances are left", n)
	}
	patience.Until(t, "the completion of the restarted instance", func() bool { return count("Completed") == 2 })
}

// Restarted instances match the filter, too, and follow in the order of the store.
func TestInstances_ABulkRestartSkipsTheInstancesThatItStarts(t *testing.T) {
	t.Parallel()
	a := newHubApp(t, usual()...)
	for i := range 150 {
		a.await(a.start("Quick", fmt.Sprintf("!%03d", i)), history.Completed)
	}
	form := url.Values{"action": {"restart"}, "scope": {"filter"}, "name": {"Quick"}}
	if last, steps := a.bulk(form, url.Values{}); !strings.Contains(last, "150 restarted.") || steps > 2 {
		t.Errorf("after %d steps: %s", steps, last)
	}
}

// The pages of the hub are short, every other one is empty, and most have no instance that matches. All
// restarted instances match the filter, whose time is in the future.
func TestInstances_BulkActionsReadAllPages(t *testing.T) {
	t.Parallel()
	hub, err := embedded.Open(filepath.Join(t.TempDir(), "hub.db"), embedded.Config{Relaxed: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hub.Close() })
	a := newHubAppOn(t, scattered.Hub{Store: hub}, usual()...)
	const n = 13
	for i := range n {
		a.start("Waits", fmt.Sprintf("w-%02d", i), durable.Tags{"rare": strconv.FormatBool(i%6 == 5)})
		a.await(a.start("Quick", fmt.Sprintf("!q-%02d", i)), history.Completed) // before the IDs of restarted instances
	}
	for i := range n {
		a.await(fmt.Sprintf("w-%02d", i), history.Running)
	}
	future := time.Now().Add(24 * time.Hour).UTC().Format("2006-01-02T15:04")
	for _, tt := range []struct{ action, filter, value, want string }{
		{"suspend", "tag", "rare=true", "2 suspended."},
		{"restart", "createdTo", future, "13 restarted."},
		{"terminate", "prefix", "w-", "13 terminated."},
	} {
		form := url.Values{"action": {tt.action}, "scope": {"filter"}, tt.filter: {tt.value}}
		if last, steps := a.bulk(form, url.Values{}); !strings.Contains(last, tt.want) {
			t.Errorf("%s, after %d steps: %s", tt.action, steps, last)
		}
	}
}

// A slowHub needs the complete time of a preview for each page, and returns one instance per page.
type slowHub struct{ provider.Provider }

func (h slowHub) Instances(ctx context.Context, q provider.Query) (*provider.Page, error) {
	time.Sleep(countTime)
	q.PageSize = 1
	return h.Provider.Instances(ctx, q)
}

func TestInstances_BulkActionsContinueAfterAPreviewWithoutMatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub, err := embedded.Open(filepath.Join(t.TempDir(), "hub.db"), embedded.Config{Relaxed: true, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = hub.Close() })
		a := newHubAppOn(t, slowHub{hub}, usual()...)
		for i := range 9 {
			a.await(a.start("Waits", fmt.Sprintf("w-%d", i), durable.Tags{"rare": strconv.FormatBool(i == 8)}), history.Running)
		}
		form := url.Values{"action": {"suspend"}, "scope": {"filter"}, "tag": {"rare=true"}}
		preview := a.post("instances/preview", form).Body.String()
		if !strings.Contains(preview, "None of the first instances matches") || strings.Contains(preview, "No instance to") || !strings.Contains(preview, "Suspend all instances") {
			t.Errorf("the preview is %s", preview)
		}
		if last, steps := a.bulk(form, url.Values{}); !strings.Contains(last, "1 suspended.") || steps < 2 {
			t.Errorf("after %d steps: %s", steps, last)
		}
		a.await("w-8", history.Suspended)
		form.Set("tag", "rare=never")
		form.Set("prefix", "none")
		if preview := a.post("instances/preview", form).Body.String(); !strings.Contains(preview, "No instance to suspend") {
			t.Errorf("the preview of a filter that matches none: %s", preview)
		}
	})
}

func TestInstances_BulkActionsAskForConfirmationAndCanBeStopped(t *testing.T) {
	t.Parallel()
	a := newHubApp(t, usual()...)
	for i := range 130 {
		a.await(a.start("Waits", fmt.Sprintf("w-%03d", i)), history.Running)
	}
	form := url.Values{"action": {"terminate"}, "scope": {"filter"}}
	preview := a.post("instances/preview", form).Body.String()
	if !strings.Contains(preview, "<b>130</b> instances will be terminated") || len(regexp.MustCompile("<li><a ").FindAllString(preview, -1)) != previewIDs {
		t.Errorf("the preview is %s", preview)
	}
	if n := len(listed(a.get("instances?size=500&status=Running"))); n != 130 {
		t.Errorf("%d instances run after the preview, want all", n)
	}
	state := attribute(preview, `name="state" value="([^"]*)"`)
	page := a.post("instances/run", url.Values{"state": {state}, "confirmed": {"1"}, "reason": {"r"}}).Body.String()
	part := a.post("instances/run", url.Values{"state": {attribute(page, `name="state" value="([^"]*)"`)}}, "Hx-Request", "true").Body.String()
	if !strings.Contains(part, "100 terminated") || !strings.Contains(part, `value="100"`) {
		t.Errorf("after a step: %s", part)
	}
	stopped := a.post("instances/run", url.Values{"state": {attribute(part, `name="state" value="([^"]*)"`)}, "stop": {"1"}}).Body.String()
	if !strings.Contains(stopped, "Stopped.") || strings.Contains(stopped, "hx-post") {
		t.Errorf("stopped: %s", stopped)
	}
	for i := range 100 {
		a.await(fmt.Sprintf("w-%03d", i), history.Terminated)
	}
	if n := len(listed(a.get("instances?size=500&status=Running"))); n != 30 {
		t.Errorf("%d instances run after the stop, want 30", n)
	}
	for name, form := range map[string]url.Values{
		"nothing selected": {"action": {"purge"}}, "no such action": {"action": {"explode"}, "scope": {"filter"}},
	} {
		if w := a.post("instances/preview", form); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	if w := a.post("instances/run", url.Values{"state": {"nonsense"}}); w.Code != http.StatusBadRequest {
		t.Errorf("nonsense: %d %s", w.Code, w.Body)
	}
	if body := a.post("instances/preview", url.Values{"action": {"rewind"}, "scope": {"filter"}}).Body.String(); !strings.Contains(body, "No instance to rewind") {
		t.Errorf("none to rewind: %s", body)
	}
}

func TestInstances_ShowNoFormsToReaders(t *testing.T) {
	t.Parallel()
	a := newHubApp(t, usual()...)
	a.await(a.start("Waits", "i"), history.Running)
	cookie, token := a.cookie, a.token
	r := a.send(http.MethodPost, "login", url.Values{"code": {theOther}}, nil)
	a.cookie, _, _ = strings.Cut(r.Header().Get("Set-Cookie"), ";")
	for _, path := range []string{"instances", "instance?id=i"} {
		page := a.get(path)
		for _, bad := range []string{"/instance/act", "/instance/raise", "/instances/preview", `name="action"`, `name="id"`, "-X POST"} {
			if strings.Contains(page, bad) {
				t.Errorf("%s has %s: %s", path, bad, page)
			}
		}
		if !strings.Contains(page, ">i<") {
			t.Errorf("%s does not show the instance: %s", path, page)
		}
	}
	for _, path := range []string{"instances/preview", "instances/run", "instance/act", "instance/raise"} {
		for _, token := range []string{token, "", attribute(a.get("instances"), `name="csrf" value="([^"]+)"`)} {
			a.token = token
			if w := a.post(path, url.Values{"id": {"i"}, "action": {"terminate"}, "event": {"Approval"}, "scope": {"filter"}}); w.Code != http.StatusForbidden {
				t.Errorf("%s: %d %s", path, w.Code, w.Body)
			}
		}
	}
	a.cookie, a.token = cookie, token
	if s := a.await("i", history.Running); s.Status != history.Running {
		t.Errorf("the instance is %s", s.Status)
	}
}
