//go:build unix

package e2e_test

import (
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
)

// answers waits until a GET request has the given response.
func (a *app) answers(path string, status int, body string) {
	a.t.Helper()
	eventually(a.t, 60*time.Second, path+" to be "+body, func() bool {
		got, err := a.try(http.MethodGet, path, nil)
		return err == nil && got.status == status && got.body == body
	})
}

// The test uses the sample's counters through the management API and an orchestration, and again after a
// restart of the app.
func TestStandalone_EntitiesKeepTheirState(t *testing.T) {
	t.Parallel()
	root := newRoot(t, newHub(), azuritetest.Start(t), nil)
	a := startStandalone(t, sampleApp, root)
	const entities = "/api/durabletask/entities/"
	signal := func(path string, body any) {
		t.Helper()
		if got := a.call(http.MethodPost, entities+path, body); got.status != http.StatusAccepted {
			t.Fatalf("POST %s: %d %s, want 202", path, got.status, got.body)
		}
	}
	a.answers(entities+"Counter/a", http.StatusNotFound, "")
	for range 10 {
		signal("Counter/a?op=add", 2)
	}
	signal("COUNTER/b?op=Add", 1)
	a.answers(entities+"Counter/a", http.StatusOK, `{"value":20}`)
	a.answers(entities+"counter/b", http.StatusOK, `{"value":1}`)

	a.completed(a.start("E5_MoveCount", map[string]any{"from": "a", "to": "b", "by": 5}).StatusQueryGetURI, 30*time.Second, "[15,6]")
	if s := a.await(a.start("E5_MoveCount", map[string]any{"from": "b", "to": "a", "by": 7}).StatusQueryGetURI, 30*time.Second); s.RuntimeStatus != "Failed" {
		t.Errorf("the move exceeds the counter but did not fail: %s %s", s.RuntimeStatus, s.Output)
	}
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-a.done

	a = startStandalone(t, sampleApp, root)
	signal("Counter/a?op=add", 1)
	a.answers(entities+"Counter/a", http.StatusOK, `{"value":16}`)
	type listed struct {
		EntityID struct{ Name, Key string }
		State    struct{ Value int }
	}
	got := a.call(http.MethodGet, entities+"counter?fetchState=true", nil)
	values := map[string]int{}
	for _, e := range decode[[]listed](t, got.body) {
		values[e.EntityID.Name+" "+e.EntityID.Key] = e.State.Value
	}
	if len(values) != 2 || values["counter a"] != 16 || values["counter b"] != 6 {
		t.Errorf("listed %s, want a with 16 and b with 6", got.body)
	}
	if got := a.call(http.MethodDelete, entities+"Counter/a", nil); got.status != http.StatusAccepted {
		t.Errorf("DELETE: %d %s, want 202", got.status, got.body)
	}
	a.answers(entities+"Counter/a", http.StatusNotFound, "")
}
