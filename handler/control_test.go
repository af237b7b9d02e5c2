package handler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
	"github.com/google/go-cmp/cmp"
)

// A fullHub is a fakeHub that can purge and rewind.
type fullHub struct {
	*fakeHub
	rewound []string // IDs and reasons
	cannot  error    // the error of a purge or a rewind of the instance "failed"
}

func (h *fullHub) Purge(_ context.Context, id string, _ *provider.InstanceState) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.instances[id] == nil:
		return provider.ErrInstanceNotFound
	case id == "failed" && h.cannot != nil:
		return h.cannot
	}
	delete(h.instances, id)
	return nil
}

func (h *fullHub) Backup(_ context.Context, path string) (size int64, err error) {
	if path == "/backups/taken.db" {
		return 0, &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
	}
	return 1_234_567, nil
}

func (h *fullHub) Rewind(_ context.Context, id, reason string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := h.instances[id]; i != nil && i.Status == history.Pending {
		return provider.ErrInstanceChanged // it has only started
	}
	if id == "failed" && h.cannot != nil {
		return h.cannot
	}
	h.rewound = append(h.rewound, id+": "+reason)
	return nil
}

// allStatuses adds one instance for each status, with the status as its ID.
func (h *fullHub) allStatuses() {
	for s := history.Running; s <= history.Suspended; s++ {
		h.put(strings.ToLower(s.String()), s, func(i *provider.InstanceState) { i.Input = new(`"in"`) })
	}
}

func newFullHub() *fullHub {
	h := &fullHub{fakeHub: newFakeHub()}
	h.allStatuses()
	return h
}

// See HttpApiHandler.cs, HandleSuspendInstanceRequestAsync and HandleResumeInstanceRequestAsync;
// DurableClient.cs, SuspendAsync and ResumeAsync.
func TestSuspendAndResume_AreAcceptedInTheRightStatusOnly(t *testing.T) {
	t.Parallel()
	wrong := func(operation, id, status string) string {
		return `{"Message":"Something went wrong while processing your request","ExceptionMessage":"Cannot ` + operation +
			` the orchestration instance ` + id + ` because instance is in the ` + status +
			` state.","ExceptionType":"System.InvalidOperationException","StackTrace":""}`
	}
	suspended, resumed := &history.ExecutionSuspended{Reason: new("a pause")}, &history.ExecutionResumed{Reason: new("a pause")}
	for _, tt := range []struct {
		target string
		code   int
		answer string
		want   history.Event
	}{
		{"running/suspend", 202, "", suspended},
		{"pending/SUSPEND", 202, "", suspended},
		{"continuedasnew/suspend", 202, "", suspended},
		{"suspended/suspend", 500, wrong("suspend", "suspended", "Suspended"), nil},
		{"completed/suspend", 410, "", nil},
		{"failed/suspend", 410, "", nil},
		{"terminated/suspend", 410, "", nil},
		{"canceled/suspend", 410, "", nil},
		{"unknown/suspend", 404, "", nil},
		{"suspended/resume", 202, "", resumed},
		{"suspended/Resume/", 202, "", resumed},
		{"running/resume", 500, wrong("resume", "running", "Running"), nil},
		{"pending/resume", 500, wrong("resume", "pending", "Pending"), nil},
		{"completed/resume", 410, "", nil},
		{"unknown/resume", 404, "", nil},
	} {
		hub := newFullHub()
		s := readyServer(t, App{}, fakeConfig(t, hub))
		w := call(s, "POST", "/api/durabletask/instances/"+tt.target+"?reason=a%20pause", "")
		if w.Code != tt.code || w.Body.String() != tt.answer {
			t.Errorf("%s: %d %s, want %d %s", tt.target, w.Code, w.Body, tt.code, tt.answer)
		}
		var got history.Event
		if sent := hub.messages(); len(sent) == 1 {
			got = sent[0].Event
			*got.Head() = history.Header{}
		}
		if diff := cmp.Diff(got, tt.want); diff != "" {
			t.Errorf("%s: sent, want:\n%s", tt.target, diff)
		}
	}
}

// See HttpApiHandler.cs, HandleRewindInstanceRequestAsync.
func TestRewind_AcceptsFailedInstancesOnlyAndReturnsTheReason(t *testing.T) {
	t.Parallel()
	hub := newFullHub()
	s := readyServer(t, App{}, fakeConfig(t, hub))
	const jsonAnswer = "\nContent-Type: application/json; charset=utf-8\n"
	for _, tt := range []struct{ id, want string }{
		{"failed", "202"},
		{"running", "412" + jsonAnswer + `"This orchestration has status Running, but only orchestrations in the \"Failed\" state can be rewound."`},
		{"completed", "412" + jsonAnswer + `"This orchestration has status Completed, but only orchestrations in the \"Failed\" state can be rewound."`},
		{"nobody", "404" + jsonAnswer + `"No orchestration with instance ID \"nobody\" found."`},
	} {
		compare(t, tt.id, answerText(s, "POST", "/api/durabletask/instances/"+tt.id+"/rewind?reason=try%20again", ""), tt.want)
	}
	if diff := cmp.Diff(hub.rewound, []string{"failed: try again"}); diff != "" {
		t.Errorf("rewound, want:\n%s", diff)
	}
	hub.cannot = fmt.Errorf("child \"c\": %w", provider.ErrLocksReleased)
	compare(t, "locks", answerText(s, "POST", "/api/durabletask/instances/failed/rewind", ""),
		"412"+jsonAnswer+`"rewind instance failed: child \"c\": the instance held locks until it ended, so it cannot continue; use restart"`)

	unable := newFakeHub()
	unable.put("failed", history.Failed, nil)
	got := answerText(readyServer(t, App{}, fakeConfig(t, unable)), "POST", "/api/durabletask/instances/failed/rewind", "")
	compare(t, "a hub that cannot", got, "501"+jsonAnswer+`{"Message":"Rewind is not supported by the underlying storage provider.",`+
		`"ExceptionMessage":"rewind instance failed: not supported by the provider of the task hub","ExceptionType":"System.NotSupportedException","StackTrace":""}`)
}

// See HttpApiHandler.cs, HandleRestartInstanceRequestAsync.
func TestRestart_StartsTheSameOrchestratorWithTheSameInput(t *testing.T) {
	t.Parallel()
	hub := newFullHub()
	hub.put("old", history.Completed, func(i *provider.InstanceState) {
		i.Input, i.Version, i.Tags = new(`{"a": 1}`), "2.0", map[string]string{"team": "a"}
	})
	s := readyServer(t, App{}, fakeConfig(t, hub))

	w := call(s, "POST", "/api/durabletask/instances/old/restart", "")
	if w.Code != http.StatusAccepted {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	var fresh *provider.InstanceState
	for id, state := range hub.instances {
		if len(id) == 32 {
			fresh = state
		}
	}
	if fresh == nil || fresh.Name != "Greet" || *fresh.Input != `{"a": 1}` || fresh.Version != "2.0" || fresh.Tags["team"] != "a" {
		t.Errorf("started %+v", fresh)
	}
	if w := call(s, "POST", "/api/durabletask/instances/old/restart?restartWithNewInstanceId=False", ""); w.Code != http.StatusAccepted ||
		!strings.HasPrefix(w.Body.String(), `{"id":"old",`) {
		t.Errorf("in its place: %d %s", w.Code, w.Body)
	}
	if state := hub.instances["old"]; state.Status != history.Pending {
		t.Errorf("in its place is %+v", state)
	}
	const jsonAnswer = "\nContent-Type: application/json; charset=utf-8\n"
	compare(t, "unknown", answerText(s, "POST", "/api/durabletask/instances/nobody/restart", ""), "400"+jsonAnswer+
		`{"Message":"InstanceId does not match a valid orchestration instance.","ExceptionMessage":"restart instance nobody: instance not found","ExceptionType":"System.ArgumentException","StackTrace":""}`)
	compare(t, "live", answerText(s, "POST", "/api/durabletask/instances/running/restart?restartWithNewInstanceId=false", ""), "409"+jsonAnswer+
		`{"Message":"A non-terminal instance with this instance ID already exists.","ExceptionMessage":"An Orchestration instance with the status Running already exists.","ExceptionType":"DurableTask.Core.Exceptions.OrchestrationAlreadyExistsException","StackTrace":""}`)
	if w := call(s, "POST", "/api/durabletask/instances/running/restart", ""); w.Code != http.StatusAccepted {
		t.Errorf("live, under a new ID: %d %s", w.Code, w.Body)
	}
	if w := call(s, "POST", "/api/durabletask/instances/old/restart?timeout=1&pollingInterval=2", ""); w.Code != http.StatusBadRequest {
		t.Errorf("polling longer than the wait: %d %s", w.Code, w.Body)
	}
}

func TestRestart_WaitsForTheOutputOnRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub := newFullHub()
		s := readyServer(t, App{}, fakeConfig(t, hub))
		timer := time.AfterFunc(2*time.Second, func() {
			hub.put("failed", history.Completed, func(i *provider.InstanceState) { i.Output = new(`"done"`) })
		})
		defer timer.Stop()
		w := call(s, "POST", "/api/durabletask/instances/failed/restart?restartWithNewInstanceId=false&timeout=10&pollingInterval=1", "")
		if w.Code != http.StatusOK || w.Body.String() != `"done"` {
			t.Errorf("%d %s, want 200 and the output", w.Code, w.Body)
		}
	})
}

// See HttpApiHandler.cs, HandleDeleteHistoryByIdRequestAsync.
func TestPurge_RemovesAnEndedInstance(t *testing.T) {
	t.Parallel()
	hub := newFullHub()
	hub.put("@counter@k", history.Running, nil)
	s := readyServer(t, App{}, fakeConfig(t, hub))
	const jsonAnswer = "\nContent-Type: application/json; charset=utf-8\n"
	for _, tt := range []struct{ id, want string }{
		{"completed", "200" + jsonAnswer + `{"instancesDeleted":1}`},
		{"completed", "404"},
		{"@counter@k", "200" + jsonAnswer + `{"instancesDeleted":1}`},
		{"running", "412" + jsonAnswer + `"Only orchestrations in a terminal state can be purged, but the orchestration with instance ID running has status Running"`},
		{"pending", "412" + jsonAnswer + `"Only orchestrations in a terminal state can be purged, but the orchestration with instance ID pending has status Pending"`},
		{"nobody", "404"},
	} {
		compare(t, tt.id, answerText(s, "DELETE", "/api/durabletask/instances/"+tt.id, ""), tt.want)
	}
	if n := len(hub.instances); n != 7 {
		t.Errorf("%d instances are left, want 7", n)
	}
	unable := newFakeHub()
	unable.put("i", history.Failed, nil)
	if w := call(readyServer(t, App{}, fakeConfig(t, unable)), "DELETE", "/api/durabletask/instances/i", ""); w.Code != http.StatusNotImplemented {
		t.Errorf("a hub that cannot: %d %s, want 501", w.Code, w.Body)
	}
}

// See HttpApiHandler.cs, HandleDeleteHistoryWithFiltersRequestAsync.
func TestPurgeMany_RemovesOnlyEndedInstances(t *testing.T) {
	t.Parallel()
	const jsonAnswer = "\nContent-Type: application/json; charset=utf-8\n"
	for _, tt := range []struct {
		query string
		want  string
		left  int
	}{
		{"", "400" + jsonAnswer + `"Please provide value for 'createdTimeFrom' parameter."`, 8},
		{"createdTimeFrom=nonsense", "400" + jsonAnswer + `"Please provide value for 'createdTimeFrom' parameter."`, 8},
		{"createdTimeFrom=2020-01-01", "200" + jsonAnswer + `{"instancesDeleted":4}`, 4},
		{"createdTimeFrom=1-01-01T00:00:00.000000Z", "200" + jsonAnswer + `{"instancesDeleted":4}`, 4}, // Python's datetime.min
		{"createdTimeFrom=2020-01-01&runtimeStatus=Failed,Running&runtimeStatus=Completed", "200" + jsonAnswer + `{"instancesDeleted":2}`, 6},
		{"createdTimeFrom=2020-01-01&runtimeStatus=Running,Pending", "404", 8},
		{"createdTimeFrom=2020-01-01&instanceIdPrefix=term", "200" + jsonAnswer + `{"instancesDeleted":1}`, 7},
		{"createdTimeFrom=2020-01-01&createdTimeTo=soon", "400" + jsonAnswer + `"createdTimeTo \"soon\" is not a valid time."`, 8},
		{"createdTimeFrom=2020-01-01&createdTimeTo=1/2/2020%2012:00:00%20AM", "404", 8},
		{"createdTimeFrom=2020-01-01&createdTimeTo=", "200" + jsonAnswer + `{"instancesDeleted":4}`, 4},
		{"createdTimeFrom=2020-01-01&runtimeStatus=completed&runtimeStatus=42", "400" + jsonAnswer +
			`"runtimeStatus \"completed,42\" has no valid status. Valid statuses of ended instances: Completed, Failed, Canceled, Terminated."`, 8},
		{"createdTimeFrom=2020-01-01&runtimeStatus=,", "400" + jsonAnswer +
			`"runtimeStatus \",\" has no valid status. Valid statuses of ended instances: Completed, Failed, Canceled, Terminated."`, 8},
		{"createdTimeFrom=2020-01-01&runtimeStatus=completed,Failed", "200" + jsonAnswer + `{"instancesDeleted":1}`, 7},
		{"createdTimeFrom=2020-01-01&runtimeStatus=", "200" + jsonAnswer + `{"instancesDeleted":4}`, 4},
	} {
		hub := newFullHub()
		s := readyServer(t, App{}, fakeConfig(t, hub))
		compare(t, tt.query, answerText(s, "DELETE", "/api/durabletask/instances/?"+tt.query, ""), tt.want)
		if n := len(hub.instances); n != tt.left {
			t.Errorf("%s: %d instances are left, want %d", tt.query, n, tt.left)
		}
	}
	hub := newFullHub()
	s := readyServer(t, App{}, fakeConfig(t, hub))
	call(s, "DELETE", "/api/durabletask/instances?createdTimeFrom=2026-01-02T03:04:05Z&createdTimeTo=2026-01-03", "")
	if q := hub.queries[0]; !q.CreatedFrom.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) || !q.CreatedTo.Equal(time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("asked for %v to %v", q.CreatedFrom, q.CreatedTo)
	}
}

func TestPurgeMany_ErrorHasTheNumberOfPurgedInstances(t *testing.T) {
	t.Parallel()
	hub := newFullHub()
	hub.cannot = errors.New("its row cannot be read")
	hub.unreadable = []provider.UnreadableInstance{{InstanceID: "broken", Cause: errors.New("no JSON")}}
	s := readyServer(t, App{}, fakeConfig(t, hub))
	w := call(s, "DELETE", "/api/durabletask/instances?createdTimeFrom=2020-01-01", "")
	var got struct {
		Message, ExceptionMessage string
		InstancesDeleted          int
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if w.Code != http.StatusInternalServerError || got.InstancesDeleted != 3 || !strings.Contains(got.ExceptionMessage, "its row cannot be read") {
		t.Errorf("%d %s, want 500, 3 purged and the reason", w.Code, w.Body)
	}
	if n := w.Header().Get(management.HeaderUnreadable); n != "1" {
		t.Errorf("%s is %q, want 1", management.HeaderUnreadable, n)
	}
	if w := call(s, "GET", "/api/durabletask/instances?top=no", ""); strings.Contains(w.Body.String(), "instancesDeleted") {
		t.Errorf("another error has a count: %s", w.Body)
	}
}

func TestStart_UsesTheRequestedVersionOrTheDefault(t *testing.T) {
	t.Parallel()
	for _, byDefault := range []durable.Version{"", "2.0"} {
		hub := newFakeHub()
		cfg := fakeConfig(t, hub)
		cfg.Worker.Version = byDefault
		s := readyServer(t, App{}, cfg)
		for id, query := range map[string]string{"with": "?VERSION=1.2", "without": "", "empty": "?version="} {
			if w := call(s, "POST", "/api/durabletask/orchestrators/Greet/"+id+query, ""); w.Code != http.StatusAccepted {
				t.Fatalf("%s: %d %s", id, w.Code, w.Body)
			}
		}
		got := map[string]string{}
		for id, state := range hub.instances {
			got[id] = state.Version
		}
		if diff := cmp.Diff(got, map[string]string{"with": "1.2", "without": string(byDefault), "empty": string(byDefault)}); diff != "" {
			t.Errorf("versions with the default %q, want:\n%s", byDefault, diff)
		}
	}
}
