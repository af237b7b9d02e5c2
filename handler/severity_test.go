package handler

import (
	"errors"
	"log/slog"
	"net/http"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// The API of .NET answers some mistakes of callers with status 500.
func TestLogging_LevelOfARequestFollowsTheFault(t *testing.T) {
	t.Parallel()
	hub := newFakeHub()
	cfg, log := loggedConfig(t, hub)
	s := readyServer(t, App{}, cfg)
	hub.put("runs", history.Running, nil)
	hub.put("suspended", history.Suspended, nil)
	for _, path := range []string{"runs/resume", "suspended/suspend"} {
		if w := call(s, "POST", managed+"instances/"+path, ""); w.Code != http.StatusInternalServerError {
			t.Errorf("%s: status %d, want the 500 of .NET", path, w.Code)
		}
		if log.count("level=INFO msg=\"request failed\"") != 1 || log.count("level=ERROR") > 0 {
			t.Errorf("%s is not logged as a caller's mistake", path)
		}
		log.text.Reset()
	}
	hub.fail(errors.New("a bug"))
	if w := call(s, "POST", managed+"instances/runs/resume", ""); w.Code != http.StatusInternalServerError || log.count("level="+slog.LevelError.String()) != 1 {
		t.Errorf("an unexpected error: status %d, want 500 and an ERROR line", w.Code)
	}
}
