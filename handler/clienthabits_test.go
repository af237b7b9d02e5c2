package handler

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/google/go-cmp/cmp"
)

// Requests of azure-functions-durable 1.x (models/DurableOrchestrationClient.py,
// models/RpcManagementOptions.py, models/utils/http_utils.py). The client encodes bodies twice, spells
// Booleans as in Python, omits false values, and uses connectionName instead of connection.
func TestManagement_AcceptsTheRequestsOfPythonsClient(t *testing.T) {
	t.Parallel()
	hub := newFullHub()
	hub.histories["completed"] = []history.Event{&history.EventRaised{Header: history.Header{Timestamp: fakeTime}, Name: "E"}}
	s := readyServer(t, App{}, fakeConfig(t, hub))
	const base, q = "/runtime/webhooks/durabletask/", "taskHub=MyHub&connectionName=Storage"
	jsonText := []string{"Content-Type", "application/json"}
	for _, tt := range []struct {
		method, target, body string
		headers              []string
		code                 int
		says                 string
	}{
		{"POST", base + "orchestrators/Greet/new", `"{\"city\": \"Oslo\"}"`, jsonText, 202, `"id":"new"`},
		{"POST", base + "orchestrators/Greet/@x", `"1"`, jsonText, 400, `"ExceptionMessage":"Orchestration instance ids must not start with @."`},
		{"GET", base + "instances/completed?" + q + "&showHistory=True&showHistoryOutput=True&showInput=True", "", nil, 200, `"historyEvents":[{"EventType":"EventRaised"`},
		{"GET", base + "instances/?" + q + "&createdTimeFrom=2020-01-01T00:00:00.000000Z&createdTimeTo=2030-01-01T00:00:00.000000Z&runtimeStatus=Running,Completed", "", nil, 200, `"runtimeStatus":"Running"`},
		{"POST", base + "instances/running/raiseEvent/Approve?" + q, `"{\"approved\": true}"`, jsonText, 202, ""},
		{"POST", base + "instances/running/terminate?" + q + "&reason=no%20more", "null", jsonText, 202, ""},
		{"POST", base + "instances/pending/suspend?" + q + "&reason=a%20pause", "null", jsonText, 202, ""},
		{"POST", base + "instances/suspended/resume?" + q + "&reason=on", "null", jsonText, 202, ""},
		{"POST", base + "instances/failed/rewind?" + q + "&reason=again", "null", jsonText, 202, ""},
		{"POST", base + "entities/Counter/k?" + q + "&op=add", `"1"`, jsonText, 202, ""},
		{"GET", base + "entities/Counter/none?" + q, "", nil, 404, ""},
		{"DELETE", base + "instances/terminated?" + q, "", nil, 200, `{"instancesDeleted":1}`},
		{"DELETE", base + "instances/nobody?" + q, "", nil, 404, ""},
		{"DELETE", base + "instances/?" + q + "&createdTimeFrom=1-01-01T00:00:00.000000Z&runtimeStatus=Completed", "", nil, 200, `{"instancesDeleted":1}`},
	} {
		w := call(s, tt.method, tt.target, tt.body, tt.headers...)
		if w.Code != tt.code || !strings.Contains(w.Body.String(), tt.says) {
			t.Errorf("%s %s: %d %s, want %d with %s", tt.method, tt.target, w.Code, w.Body, tt.code, tt.says)
		}
	}
	if got := hub.instances["new"]; got == nil || *got.Input != `"{\"city\": \"Oslo\"}"` {
		t.Errorf("started %+v, want the input as it was sent", got)
	}
	if e, ok := hub.messages()[0].Event.(*history.EventRaised); !ok || *e.Input != `"{\"approved\": true}"` {
		t.Errorf("the event is %+v", hub.messages()[0].Event)
	}
	if diff := cmp.Diff(hub.rewound, []string{"failed: again"}); diff != "" {
		t.Errorf("rewound: %s", diff)
	}
}

// Logic Apps, Data Factory and similar callers only use 202, Location and Retry-After
// (HttpApiHandler.cs, HandleGetStatusRequestAsync).
func TestStatus_LocationCanBePolledUntilTheInstanceEnds(t *testing.T) {
	t.Parallel()
	hub := newFakeHub()
	s := readyServer(t, App{}, fakeConfig(t, hub))
	w := call(s, "POST", managed+"orchestrators/Greet/i?code=k", "1")
	for _, status := range []history.RuntimeStatus{history.Pending, history.Running, history.Suspended, history.Running, history.Completed} {
		if w.Code != http.StatusAccepted || w.Header().Get("Retry-After") == "" {
			t.Fatalf("%d with headers %v, want 202 and when to ask again", w.Code, w.Header())
		}
		hub.put("i", status, nil)
		w = call(s, "GET", strings.TrimPrefix(w.Header().Get("Location"), "http://localhost:8080"), "")
	}
	if w.Code != http.StatusOK || w.Header().Get("Location") != "" {
		t.Errorf("at the end: %d with headers %v", w.Code, w.Header())
	}
}

// Entities are instances, too, and appear in lists (HttpApiHandler.cs, HandleGetStatusRequestAsync of
// many instances).
func TestList_IncludesEntitiesUnlessThePrefixExcludesThem(t *testing.T) {
	t.Parallel()
	hub := newFakeHub()
	hub.put("@counter@k", history.Running, nil)
	hub.put("order", history.Completed, nil)
	s := readyServer(t, App{}, fakeConfig(t, hub))
	for query, want := range map[string][2]bool{"": {true, true}, "?instanceIdPrefix=o": {false, true}, "?instanceIdPrefix=%40counter%40": {true, false}} {
		body := call(s, "GET", managed+"instances"+query, "").Body.String()
		got := [2]bool{strings.Contains(body, `"instanceId":"@counter@k"`), strings.Contains(body, `"instanceId":"order"`)}
		if got != want {
			t.Errorf("%q lists %s", query, body)
		}
	}
}

// Instances that are created from now on are not purged (HttpApiHandler.cs,
// HandleDeleteHistoryWithFiltersRequestAsync).
func TestPurgeMany_PurgesInstancesCreatedUntilNowByDefault(t *testing.T) {
	t.Parallel()
	hub := newFullHub()
	before := time.Now()
	call(readyServer(t, App{}, fakeConfig(t, hub)), "DELETE", managed+"instances?createdTimeFrom=2020-01-01", "")
	if to := hub.queries[0].CreatedTo; to.Before(before) || to.After(time.Now()) {
		t.Errorf("it ends at %v, want now", to)
	}
}

// See Options/DurableTaskOptions.cs of the extension, OverridableExistingInstanceStates.
func TestStart_ReplacesALiveInstanceIfAnyStateIsOverridable(t *testing.T) {
	t.Parallel()
	for overridable, want := range map[durable.OverridableStates]int{durable.NonRunningStates: http.StatusConflict, durable.AnyState: http.StatusAccepted} {
		hub := newFakeHub()
		hub.put("busy", history.Running, nil)
		cfg := fakeConfig(t, hub)
		cfg.Overridable = overridable
		w := call(readyServer(t, App{}, cfg), "POST", managed+"orchestrators/Greet/busy", "7")
		if replaced := hub.instances["busy"].Status == history.Pending; w.Code != want || replaced != (want == http.StatusAccepted) {
			t.Errorf("%v: %d %s, replaced %v", overridable, w.Code, w.Body, replaced)
		}
	}
}
