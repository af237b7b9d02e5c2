package handler

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/scattered"
	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/hubcli"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
)

// An idVerb is a verb of `app hub` that accepts an instance ID.
type idVerb struct {
	rest    []string // the arguments after the ID
	filters bool     // the verb accepts filters
	changes bool     // the verb changes the instance
}

var idVerbs = map[string]idVerb{
	"get":       {},
	"history":   {},
	"why":       {filters: true},
	"record":    {filters: true},
	"tail":      {filters: true},
	"raise":     {rest: []string{"Delivered"}, filters: true, changes: true},
	"terminate": {filters: true, changes: true},
	"suspend":   {filters: true, changes: true},
	"resume":    {filters: true, changes: true},
	"rewind":    {filters: true, changes: true},
	"restart":   {filters: true, changes: true},
	"purge":     {filters: true, changes: true},
}

var allStatuses = []history.RuntimeStatus{history.Pending, history.Running, history.Suspended, history.Completed, history.Failed, history.Terminated}

// verbHub is a hub with instances in all statuses and without a worker, for runs of `app hub`.
type verbHub struct {
	t        *testing.T
	server   *Server
	requests atomic.Int64 // sent by the tool
	changes  atomic.Int64 // of these, requests that change the hub
}

// newVerbHub starts an instance for each ID in each status: "ID-STATUS".
func newVerbHub(t *testing.T, ids ...string) *verbHub {
	t.Helper()
	hub, err := embedded.Open(filepath.Join(t.TempDir(), "hub.db"), embedded.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := hub.Close(); err != nil {
			t.Error(err)
		}
	})
	registry := durable.NewRegistry(
		durable.Orchestrator("Waits", func(ctx *durable.Context, _ string) (string, error) { return delivered.Wait(ctx).Await() }),
		durable.Orchestrator("Ends", func(*durable.Context, string) (string, error) { return "", nil }),
		durable.Orchestrator("Fails", func(*durable.Context, string) (string, error) { return "", errors.New("no") }),
	)
	client := durable.NewClient(hub, registry)
	start := func(id string, status history.RuntimeStatus) {
		name, ends := map[history.RuntimeStatus]string{history.Completed: "Ends", history.Failed: "Fails"}[status]
		if !ends {
			name = "Waits"
		}
		tags := durable.Tags(map[string]string{"team": "blue"})
		if _, err := client.StartByName(t.Context(), name, nil, durable.InstanceID(id+"-"+status.String()), tags); err != nil {
			t.Fatal(err)
		}
	}
	becomes := func(id string, status history.RuntimeStatus) {
		patience.Until(t, id+" is "+status.String(), func() bool {
			state, err := client.Status(t.Context(), durable.InstanceID(id+"-"+status.String()), durable.Fetch{})
			return err == nil && state.Status == status
		})
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- durable.NewWorker(hub, registry, durable.Config{Logger: slog.New(slog.DiscardHandler)}).Run(ctx)
	}()
	for _, id := range ids {
		for _, status := range allStatuses[1:] {
			start(id, status)
		}
		if err := client.Suspend(t.Context(), durable.InstanceID(id+"-Suspended"), ""); err != nil {
			t.Fatal(err)
		}
		if err := client.Terminate(t.Context(), durable.InstanceID(id+"-Terminated"), ""); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range ids {
		for _, status := range allStatuses[1:] {
			becomes(id, status)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		start(id, history.Pending)
	}
	return &verbHub{t: t, server: readyServer(t, App{}, fakeConfig(t, scattered.Hub{Store: hub}))}
}

// RoundTrip implements [http.RoundTripper].
func (h *verbHub) RoundTrip(r *http.Request) (*http.Response, error) {
	h.requests.Add(1)
	if r.Method != http.MethodGet {
		h.changes.Add(1)
	}
	return inProcess{h.server}.RoundTrip(r)
}

// A verbRun is the result of one run of `app hub`.
type verbRun struct {
	out, errs         string
	code              int
	requests, changes int64
}

func (h *verbHub) run(args ...string) verbRun {
	h.t.Helper()
	var out, errs strings.Builder
	if args[0] == "record" {
		args = append(args, "--dir", h.t.TempDir())
	}
	h.requests.Store(0)
	h.changes.Store(0)
	code := hubcli.Program{
		Name: "app hub", Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs,
		Verify: func([]byte) error { return nil },
		Open: func(context.Context) (*hubcli.Target, error) {
			return &hubcli.Target{Client: &http.Client{Transport: h}, Base: "http://localhost" + web.WebhookPath}, nil
		},
	}.Run(h.t.Context(), args)
	return verbRun{out.String(), errs.String(), code, h.requests.Load(), h.changes.Load()}
}

// refuses checks that the command exits with code, prints one line, and changes nothing.
func (h *verbHub) refuses(code int, args ...string) verbRun {
	h.t.Helper()
	got := h.run(args...)
	if got.code != code || got.out != "" || strings.Count(got.errs, "\n") != 1 {
		h.t.Errorf("%q: exit code %d, want %d, and one line on standard error\n%s%s", args, got.code, code, got.out, got.errs)
	}
	if got.changes > 0 && code == hubcli.ExitRefused {
		h.t.Errorf("%q sent %d requests that change the hub", args, got.changes)
	}
	return got
}

func (v idVerb) args(name, id string, flags ...string) []string {
	return slices.Concat([]string{name, id}, v.rest, flags)
}

func TestHubVerbs_TableHasEachVerbWithAnID(t *testing.T) {
	t.Parallel()
	help := (&verbHub{t: t}).run("--help")
	var listed []string
	for _, match := range regexp.MustCompile(`(?m)^  (\w+) \[?ID\]?`).FindAllStringSubmatch(help.out, -1) {
		listed = append(listed, match[1])
	}
	for _, name := range listed {
		if _, ok := idVerbs[name]; !ok {
			t.Errorf("verb %s accepts an ID and has no row in idVerbs", name)
		}
	}
	if len(listed) != len(idVerbs) {
		t.Errorf("the help lists %v, idVerbs has %d verbs", listed, len(idVerbs))
	}
}

func TestHubVerbs_RefuseAnInstanceThatDoesNotMatch(t *testing.T) {
	t.Parallel()
	h := newVerbHub(t, "one")
	for name, v := range idVerbs {
		for _, id := range []string{"nobody", "a/b", "a?b#c", strings.Repeat("x", 300)} {
			h.refuses(hubcli.ExitNotFound, v.args(name, id)...)
		}
		for _, id := range []string{"", "\xff"} {
			h.refuses(hubcli.ExitUsage, v.args(name, id)...)
		}
		if got := h.refuses(hubcli.ExitUsage, v.args(name, "one-Running", "--all")...); got.requests > 0 {
			t.Errorf("%s with an ID and --all sent %d requests", name, got.requests)
		}
		if !v.filters {
			continue
		}
		for _, status := range allStatuses {
			id := "one-" + status.String()
			other := history.Running
			if status == other {
				other = history.Completed
			}
			for _, filter := range [][]string{
				{"--status", other.String()},
				{"--prefix", "two"},
				{"--name", "Other"},
				{"--tag", "team=red"},
				{"--tag", "urgent"},
				{"--created-after", "2126-01-31T12:00:00Z"},
				{"--created-before", "2006-01-31T12:00:00Z"},
			} {
				h.refuses(hubcli.ExitRefused, v.args(name, id, filter...)...)
				if v.changes {
					h.refuses(hubcli.ExitRefused, v.args(name, id, append(filter, "--dry-run")...)...)
				}
			}
		}
		h.refuses(hubcli.ExitUsage, v.args(name, "one-Running", "--status", "odd")...)
		h.refuses(hubcli.ExitNotFound, v.args(name, "nobody", "--status", "Running")...)
		if v.changes {
			h.refuses(hubcli.ExitNotFound, v.args(name, "nobody", "--dry-run")...)
		}
	}
	for _, args := range [][]string{
		{"start", "Ends", "--id", "a/b"},
		{"start", ""},
		{"start", "Ends", "--input-file", "nowhere"},
		{"raise", "one-Running", "E", "--input-file", "nowhere"},
		{"entity", "signal", "counter", "a", "add", "--input-file", "nowhere"},
		{"verify", "nowhere"},
		{"verify", t.TempDir()},
		{"verify", t.TempDir(), "--name", "Waits"},
	} {
		h.refuses(hubcli.ExitUsage, args...)
	}
	h.refuses(hubcli.ExitNotFound, "entity", "get", "counter", "nobody")
}

// A dry run with an ID has the exit code of the real run. A filter that matches does not change the
// code.
func TestHubVerbs_DryRunsExitAsRealRuns(t *testing.T) {
	t.Parallel()
	runs := map[string][]string{}
	var ids []string
	for name, v := range idVerbs {
		if v.changes {
			runs[name] = []string{name}
		}
	}
	runs["restart-same"] = []string{"restart", "--same-id"}
	for name := range runs {
		ids = append(ids, name)
	}
	h := newVerbHub(t, ids...)
	accepted := 0
	for name, run := range runs {
		v := idVerbs[run[0]]
		for _, status := range allStatuses {
			id := name + "-" + status.String()
			now := time.Now().UTC()
			flags := append(run[1:len(run):len(run)], "--output", "json", "--status", "failed,"+status.String(), "--prefix", name, "--tag", "team=blue",
				"--created-after", now.Add(-time.Hour).Format(time.RFC3339), "--created-before", now.Add(time.Hour).Format(time.RFC3339))
			dry := h.run(v.args(run[0], id, append(flags, "--dry-run")...)...)
			if dry.changes > 0 {
				t.Errorf("%s of %s: a dry run changed the hub", run, id)
			}
			got := h.run(v.args(run[0], id, flags...)...)
			if got.code != dry.code || got.code != hubcli.ExitOK && got.code != hubcli.ExitRefused {
				t.Errorf("%s of %s: exit code %d, in a dry run %d\n%s%s", run, id, got.code, dry.code, got.errs, dry.errs)
			}
			if got.code != hubcli.ExitOK {
				continue
			}
			accepted++
			var one struct{ InstanceID string }
			var all []struct{ InstanceID, RuntimeStatus string }
			if err := json.Unmarshal([]byte(got.out), &one); err != nil || one.InstanceID == "" {
				t.Errorf("%s of %s prints %s", run, id, got.out)
			}
			if err := json.Unmarshal([]byte(dry.out), &all); err != nil || len(all) != 1 || all[0].InstanceID != id || all[0].RuntimeStatus != status.String() {
				t.Errorf("a dry run of %s of %s prints %s", run, id, dry.out)
			}
		}
	}
	if want := 3 + 3 + 2 + 1 + 1 + 6 + 3 + 3; accepted != want { // raise, terminate, suspend, resume, rewind, restart, same ID, purge
		t.Errorf("%d runs were accepted, want %d", accepted, want)
	}
}

// The instances of a list are on many pages, and most pages have no instance in the right status.
func TestHubVerbs_ReachAllInstancesOfAList(t *testing.T) {
	t.Parallel()
	ids := []string{"a", "b", "c", "d", "e"}
	for name, want := range map[string][]history.RuntimeStatus{
		"terminate": {history.Pending, history.Running, history.Suspended}, "suspend": {history.Pending, history.Running}, "resume": {history.Suspended},
		"rewind": {history.Failed}, "restart": {history.Completed, history.Failed, history.Terminated}, "purge": {history.Completed, history.Failed, history.Terminated},
		"raise": {history.Pending, history.Running, history.Suspended},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newVerbHub(t, ids...)
			args := slices.Concat([]string{name}, idVerbs[name].rest, []string{"--all", "--output", "json"})
			got := h.run(args...)
			var report struct{ Instances, Refused int }
			if err := json.Unmarshal([]byte(got.out), &report); err != nil || got.code != hubcli.ExitOK || report.Instances != len(ids)*len(want) || report.Refused != 0 {
				t.Errorf("%q: exit code %d, %+v; want %d instances\n%s%s", args, got.code, report, len(ids)*len(want), got.out, got.errs)
			}
		})
	}
	h := newVerbHub(t, ids...)
	for _, args := range [][]string{{"list", "--all"}, {"list", "--top", "100"}} {
		got := h.run(append(args, "--output", "json")...)
		var all []json.RawMessage
		if err := json.Unmarshal([]byte(got.out), &all); err != nil || len(all) != len(ids)*len(allStatuses) {
			t.Errorf("%q: %d instances, want %d: %v", args, len(all), len(ids)*len(allStatuses), err)
		}
	}
}

func TestHubVerbs_FilterWithoutAMatchIsNoFailure(t *testing.T) {
	t.Parallel()
	h := newVerbHub(t, "one")
	for name, v := range idVerbs {
		if !v.changes {
			continue
		}
		args := slices.Concat([]string{name}, v.rest, []string{"--prefix", "two", "--output", "json"})
		got := h.run(args...)
		var report map[string]any
		err := json.Unmarshal([]byte(got.out), &report)
		if got.code != hubcli.ExitOK || err != nil || len(report) != 4 || report["instances"] != 0.0 || report["refused"] != 0.0 || report["failed"] != 0.0 || report["done"] == nil {
			t.Errorf("%q: exit code %d\n%s%s", args, got.code, got.out, got.errs)
		}
	}
	for _, args := range [][]string{{"list"}, {"verify"}, {"why", "--stuck"}, {"record"}} {
		if got := h.run(append(args, "--prefix", "two")...); got.code != hubcli.ExitOK {
			t.Errorf("%q: exit code %d\n%s%s", args, got.code, got.out, got.errs)
		}
	}
}

// A signal to a new entity is stored as a message without a record of the entity.
func TestHubVerbs_DrainedDoesNotClaimThatALocalFileHasNoMessages(t *testing.T) {
	t.Parallel()
	h := newVerbHub(t)
	if got := h.run("entity", "signal", "counter", "a", "add"); got.code != hubcli.ExitOK {
		t.Fatalf("exit code %d\n%s", got.code, got.errs)
	}
	got := h.run("drained", "--output", "json")
	var report map[string]any
	err := json.Unmarshal([]byte(got.out), &report)
	if messages, ok := report["messages"]; got.code != hubcli.ExitFailed || err != nil || report["drained"] != false || !ok || messages != nil {
		t.Errorf("exit code %d, want 1, and messages that are not known\n%s%s", got.code, got.out, got.errs)
	}
}
