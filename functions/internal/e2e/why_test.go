//go:build unix

package e2e_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/handler/processtest"
)

// Below the real host, the app and `app hub why` report what instances wait for, with the lines of the app's
// code.
func TestHost_ReportsWhyInstancesWait(t *testing.T) {
	processtest.SkipInShortRuns(t)
	t.Parallel()
	root := newRoot(t, newHub(), azuritetest.Start(t), nil)
	a := startHost(t, e2eApp, root)
	for id, name := range map[string]string{
		"event": "Waits", "child": "ChildWaits", "unknown": "ActivityUnknown", "nobody": "Nobody", "paused": "Waits", "ended": "ActivityFails",
	} {
		a.call(http.MethodPost, "/api/durabletask/orchestrators/"+name+"/"+id, "text")
	}
	a.call(http.MethodPost, "/api/durabletask/orchestrators/Naps/timer", 7200)
	a.call(http.MethodPost, "/api/durabletask/orchestrators/Steps/activity", map[string]int{"steps": 1, "delayMillis": 600_000})
	a.call(http.MethodPost, "/api/durabletask/instances/paused/suspend?reason=lunch", nil)

	type reason struct {
		Kind, Text string
		Where      []string
	}
	type why struct{ Reasons []reason }
	told := func(id string) []reason {
		got := a.call(http.MethodGet, "/api/durabletask/instances/"+id+"/why", nil)
		if got.status != http.StatusOK {
			t.Fatalf("why of %s: %d %s", id, got.status, got.body)
		}
		return decode[why](t, got.body).Reasons
	}
	for _, want := range []struct {
		id, kind, text, where string
		live                  bool // only the running app knows the reason
	}{
		{"event", "event", `event "Answer"`, "main.go:", false},
		{"child", "subOrchestration", `sub-orchestration "Waits", instance "child-child"`, "repair.go:", false},
		{"timer", "timer", "timer", "main.go:", false},
		{"activity", "activity", `activity "Step"`, "main.go:", false},
		{"activity", "activity", `activity "Step", running on this worker`, "main.go:", true},
		{"unknown", "activity", `activity "NobodyHasThis"`, "main.go:", false},
		{"unknown", "heldBack", `Waits for a worker that has an activity named "NobodyHasThis"`, "", true},
		{"nobody", "heldBack", `Waits for a worker that has an orchestrator named "Nobody"`, "", true},
		{"paused", "suspended", "suspended: lunch", "", false},
		{"ended", "ended", "has ended", "", false},
	} {
		is := func(r reason) bool {
			return r.Kind == want.kind && strings.Contains(r.Text, want.text) && (want.where == "" || strings.HasPrefix(strings.Join(r.Where, " "), want.where))
		}
		eventually(t, 30*time.Second, want.id+" to wait for "+want.text, func() bool { return slices.ContainsFunc(told(want.id), is) })
		if want.live {
			continue
		}
		if got := decode[[]why](t, mustHub(t, root, nil, "why", want.id, "--output", "json")); len(got) != 1 || !slices.ContainsFunc(got[0].Reasons, is) {
			t.Errorf("hub why %s: %+v, want %s", want.id, got, want.text)
		}
	}
	if out := mustHub(t, root, nil, "why", "child", "--children"); !strings.Contains(out, "child-child") || !strings.Contains(out, `event "Answer"`) {
		t.Errorf("hub why --children:\n%s", out)
	}
	if out := mustHub(t, root, nil, "why", "--stuck", "--idle", "0s"); !strings.Contains(out, "NobodyHasThis") || !strings.Contains(out, "Answer") {
		t.Errorf("hub why --stuck:\n%s", out)
	}
}
