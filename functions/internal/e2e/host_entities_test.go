//go:build unix

package e2e_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/handler/processtest"
)

// The test calls the routes of entities through the host, whose proxy changes some paths, bodies and methods.
func TestHost_ServesTheRoutesOfEntities(t *testing.T) {
	processtest.SkipInShortRuns(t)
	t.Parallel()
	requireFunc(t)
	a := startHost(t, sampleApp, newRoot(t, newHub(), azuritetest.Start(t), nil))
	const entities = "/api/durabletask/entities/"
	do := func(method, path string, body any, status int) answer {
		t.Helper()
		got := a.call(method, entities+path, body)
		if got.status != status {
			t.Fatalf("%s %s: %d %s, want %d", method, path, got.status, got.body, status)
		}
		return got
	}
	do(http.MethodGet, "Counter/a", nil, http.StatusNotFound)
	for range 3 {
		do(http.MethodPost, "Counter/a?op=add", 2, http.StatusAccepted)
	}
	do(http.MethodPost, "Counter/with%20blank?op=add", 7, http.StatusAccepted)
	a.answers(entities+"Counter/a", http.StatusOK, `{"value":6}`)
	a.answers(entities+"counter/with%20blank", http.StatusOK, `{"value":7}`)

	type listed struct {
		EntityID struct{ Name, Key string }
		State    *struct{ Value int }
	}
	if got := decode[[]listed](t, do(http.MethodGet, "counter?fetchState=true", nil, http.StatusOK).body); len(got) != 2 || got[0].State == nil || got[1].EntityID.Key != "with blank" {
		t.Errorf("listed with states: %+v", got)
	}
	first := do(http.MethodGet, "?top=1", nil, http.StatusOK)
	token := first.header.Get("x-ms-continuation-token")
	if got := decode[[]listed](t, first.body); len(got) != 1 || got[0].State != nil || token == "" {
		t.Errorf("the first page is %s with the token %q", first.body, token)
	}
	do(http.MethodPost, "Counter/a?op=add", "no number", http.StatusAccepted) // fails without a change
	do(http.MethodPost, "Nobody/a?op=add", 1, http.StatusAccepted)            // another app of the hub may know it
	do(http.MethodDelete, "Counter/a", nil, http.StatusAccepted)
	a.answers(entities+"Counter/a", http.StatusNotFound, "")
	if strings.Contains(a.log(), "panic") {
		t.Error("the log reports a panic")
	}
}
