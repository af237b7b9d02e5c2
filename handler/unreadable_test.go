package handler

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
)

func TestUnreadableInstances_AreCountedInAHeaderAndLoggedOnce(t *testing.T) {
	t.Parallel()
	hub := entityHub()
	hub.put("@counter@bad", history.Running, func(i *provider.InstanceState) { i.CustomStatus = new("{") })
	hub.unreadable = []provider.UnreadableInstance{{InstanceID: "broken", Cause: errors.New("no JSON")}}
	cfg := fakeConfig(t, hub)
	var log bytes.Buffer
	cfg.Logger = NewLogger(&log, slog.LevelError)
	s := readyServer(t, App{}, cfg)
	for range 2 {
		for request, want := range map[string]string{
			"GET instances": "1",
			"GET entities":  "2",
			"DELETE instances?createdTimeFrom=2026-01-01T00:00:00Z&runtimeStatus=Failed": "1",
		} {
			method, target, _ := strings.Cut(request, " ")
			w := call(s, method, "/api/durabletask/"+target, "")
			if got := w.Header().Get(management.HeaderUnreadable); got != want || w.Code == 500 {
				t.Errorf("%s: %d, %s is %q, want %q", request, w.Code, management.HeaderUnreadable, got, want)
			}
		}
	}
	for _, id := range []string{"instanceId=broken", "instanceId=@counter@bad"} {
		if n := strings.Count(log.String(), id); n != 1 {
			t.Errorf("the log has %s %d times, want once:\n%s", id, n, &log)
		}
	}
	hub.unreadable = nil
	if w := call(s, "GET", "/api/durabletask/instances", ""); w.Header().Values(management.HeaderUnreadable) != nil {
		t.Error("the header is there though all could be read")
	}
}
