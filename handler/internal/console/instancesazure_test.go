package console

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/google/uuid"
)

// The pages work on Azure Storage as on a local file.
func TestInstances_OnAzureStorage(t *testing.T) {
	t.Parallel()
	connection, err := azurestorage.ParseConnectionString(azuritetest.Start(t))
	if err != nil {
		t.Fatal(err)
	}
	hub, err := azurestorage.Open(connection, azurestorage.Config{TaskHub: "Console" + uuid.NewString()[:8], PartitionCount: 1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	a := newHubAppOn(t, hub, usual()...)
	want := map[string]int{}
	for i := range 30 {
		want[a.start("Waits", fmt.Sprintf("i-%02d", i), durable.Tags{"n": "1"})] = 1
	}
	for id := range want {
		a.await(id, history.Running)
	}
	seen := map[string]int{}
	for path := "instances?size=25&name=Waits&tag=n%3D1&status=Running"; path != ""; {
		page := a.get(path)
		for _, id := range listed(page) {
			seen[id]++
		}
		path = follow(page, nextPage)
	}
	if !maps.Equal(want, seen) {
		t.Errorf("the pages have %v", slices.Sorted(maps.Keys(seen)))
	}
	if got := a.part("instance/timeline?id=i-00"); !strings.Contains(got, "Approval") {
		t.Errorf("the timeline is %s", got)
	}
	if got := a.part("instance/history?id=i-00"); !strings.Contains(got, "ExecutionStarted") {
		t.Errorf("the history is %s", got)
	}
	for _, step := range []struct {
		action, last string
		status       history.RuntimeStatus
	}{{"suspend", "30 suspended.", history.Suspended}, {"terminate", "30 terminated.", history.Terminated}, {"purge", "30 purged.", -1}} {
		last, _ := a.bulk(url.Values{"action": {step.action}, "scope": {"filter"}, "prefix": {"i-"}}, url.Values{"reason": {"r"}})
		if !strings.Contains(last, step.last) {
			t.Errorf("%s: %s", step.action, last)
		}
		for id := range want {
			if step.status >= 0 {
				a.await(id, step.status)
			} else if w := a.send(http.MethodGet, "instance?"+instanceQuery(id), nil, nil); w.Code != http.StatusNotFound {
				t.Errorf("%s is still there: %d", id, w.Code)
			}
		}
	}
}
