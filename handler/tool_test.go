package handler

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
)

// toolRun runs the tool `durable` in the working directory.
func toolRun(args ...string) (out, errs string, code int) {
	var o, e bytes.Buffer
	code = toolCommand(args, &o, &e)
	return o.String(), e.String(), code
}

// leaveWaitingInstance writes a host.json into the working directory, and the hub file that it names. The hub has an
// instance that waits for a timer.
func leaveWaitingInstance(t *testing.T, id durable.InstanceID) {
	t.Helper()
	if err := os.WriteFile("host.json", []byte(`{"version": "2.0", "extensions": {"durableTask": {"hubName": "Shop"}}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	hub, err := embedded.Open(filepath.Join(".", ".durable-Shop.db"), embedded.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	registry := durable.NewRegistry(durable.Orchestrator("Sleeps", func(ctx *durable.Context, _ string) (string, error) {
		ctx.Sleep(1000 * time.Hour)
		return "", nil
	}))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- durable.NewWorker(hub, registry, durable.Config{Logger: slog.New(slog.DiscardHandler)}).Run(ctx)
	}()
	client := durable.NewClient(hub, registry)
	if _, err := client.StartByName(t.Context(), "Sleeps", nil, id); err != nil {
		t.Fatal(err)
	}
	patience.Until(t, "the instance waits for its timer", func() bool {
		w, err := client.Why(t.Context(), id)
		return err == nil && w.Reasons[0].Kind == durable.ReasonTimer
	})
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if err := hub.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestTool_ExplainsAnInstanceByItsHistoryAlone(t *testing.T) {
	t.Chdir(t.TempDir())
	leaveWaitingInstance(t, "nap")
	out, errs, code := toolRun("hub", "list", "--output", "json")
	if code != exitOK || !strings.Contains(out, `"nap"`) {
		t.Errorf("hub list: %d\n%s%s", code, out, errs)
	}
	out, errs, code = toolRun("hub", "why", "nap")
	if code != exitOK || !strings.Contains(out, "\ttimer\t") {
		t.Errorf("hub why: %d, want the timer\n%s%s", code, out, errs)
	}
	if strings.Contains(out, "not registered") {
		t.Errorf("hub why complains about functions that the tool never has:\n%s", out)
	}
	out, errs, code = toolRun("hub", "start", "Sleeps", "--id", "late")
	if code != exitOK || out != "late\n" || errs != "" {
		t.Errorf("hub start: %d\n%s%s", code, out, errs)
	}
}

// The tool has no orchestrators, so it must not report that all instances match.
func TestTool_RefusesCommandsThatNeedTheApp(t *testing.T) {
	t.Chdir(t.TempDir())
	leaveWaitingInstance(t, "nap")
	for _, args := range [][]string{
		{"hub", "verify"}, {"hub", "verify", "histories"}, {"package"}, {"deploy", "group", "shop"}, {"-write-functions", "."},
	} {
		out, errs, code := toolRun(args...)
		if code != exitUsage || out != "" || !strings.Contains(errs, "with the app's own program") {
			t.Errorf("%s: %d, want %d and the reason\n%s%s", strings.Join(args, " "), code, exitUsage, out, errs)
		}
	}
}

func TestTool_HasTheOtherCommandsOfAnApp(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"--help", exitOK, "Works on task hubs without an app"},
		{"--version", exitOK, thisModule},
		{"hub --version", exitOK, thisModule},
		{"hub --help", exitOK, "VERB"},
		{"-init --help", exitOK, "write a new app"},
		{"-schema", exitOK, "\"$schema\""},
		{"-openapi", exitOK, "\"openapi\""},
		{"", exitUsage, "Works on task hubs without an app"},
		{"list", exitUsage, "is not a command"},
	} {
		out, errs, code := toolRun(strings.Fields(tt.args)...)
		if code != tt.code || !strings.Contains(out+errs, tt.want) {
			t.Errorf("%q: %d, want %d and %q\n%s%s", tt.args, code, tt.code, tt.want, out, errs)
		}
		if strings.Contains(out+errs, "-write-functions") {
			t.Errorf("%q lists a command that needs the app:\n%s%s", tt.args, out, errs)
		}
	}
}
