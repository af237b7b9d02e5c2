//go:build unix

package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/google/go-cmp/cmp"
)

const helloOutput = `["Hello Tokyo!","Hello Seattle!","Hello London!"]`

func TestStandalone_HelloSequenceCompletes(t *testing.T) {
	t.Parallel()
	a := startStandalone(t, sampleApp, newRoot(t, newHub(), azuritetest.Start(t), nil))

	got := a.call(http.MethodPost, "/api/orchestrators/E1_HelloSequence", nil)

	if got.status != http.StatusAccepted {
		t.Fatalf("%d %s, want 202", got.status, got.body)
	}
	payload := decode[checkStatus](t, got.body)
	for _, uri := range []string{payload.StatusQueryGetURI, payload.SendEventPostURI, payload.TerminatePostURI} {
		if !strings.HasPrefix(uri, a.url+"/") {
			t.Errorf("%q does not begin with the app's origin, %s", uri, a.url)
		}
	}
	if location := got.header.Get("Location"); location != payload.StatusQueryGetURI {
		t.Errorf("Location = %q, want the statusQueryGetUri, %q", location, payload.StatusQueryGetURI)
	}
	if got.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	a.completed(payload.StatusQueryGetURI, 30*time.Second, helloOutput)
	for _, base := range []string{"/api/durabletask", "/runtime/webhooks/durabletask"} {
		if s := a.status(base + "/instances/" + payload.ID); s.RuntimeStatus != "Completed" || s.Name != "E1_HelloSequence" {
			t.Errorf("at %s: %s %s, want E1_HelloSequence Completed", base, s.Name, s.RuntimeStatus)
		}
	}
}

func TestStandalone_StatusContainsTheHistoryOnRequest(t *testing.T) {
	t.Parallel()
	a := startStandalone(t, sampleApp, newRoot(t, newHub(), azuritetest.Start(t), nil))
	started := a.start("E1_HelloSequence", nil)
	a.completed(started.StatusQueryGetURI, 30*time.Second, helloOutput)

	s := a.status("/api/durabletask/instances/" + started.ID + "?showHistory=true&showHistoryOutput=true")

	var got []string
	for _, e := range s.HistoryEvents {
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s", e.EventType, e.FunctionName, e.Result)))
	}
	want := []string{
		"ExecutionStarted E1_HelloSequence",
		`TaskCompleted E1_SayHello "Hello Tokyo!"`,
		`TaskCompleted E1_SayHello "Hello Seattle!"`,
		`TaskCompleted E1_SayHello "Hello London!"`,
		"ExecutionCompleted  " + helloOutput,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
}

func TestStandalone_CallersChooseUniqueInstanceIDs(t *testing.T) {
	t.Parallel()
	a := startStandalone(t, sampleApp, newRoot(t, newHub(), azuritetest.Start(t), nil))

	got := a.call(http.MethodPost, "/api/orchestrators/E4_SmsPhoneVerification?instanceId=order-7", "+12065550100")
	if id := decode[checkStatus](t, got.body).ID; got.status != http.StatusAccepted || id != "order-7" {
		t.Errorf("first start: %d, id %q, want 202 with order-7", got.status, id)
	}
	eventually(t, 30*time.Second, "the instance to run", func() bool {
		return a.status("/api/durabletask/instances/order-7").RuntimeStatus == "Running"
	})
	if got := a.call(http.MethodPost, "/api/orchestrators/E4_SmsPhoneVerification?instanceId=order-7", "+12065550100"); got.status != http.StatusConflict {
		t.Errorf("second start: %d %s, want 409", got.status, got.body)
	}
	if got := a.call(http.MethodGet, "/api/durabletask/instances/order-8", nil); got.status != http.StatusNotFound {
		t.Errorf("status of an unknown instance: %d, want 404", got.status)
	}
}

func TestStandalone_EventsArriveAndTerminateEnds(t *testing.T) {
	t.Parallel()
	a := startStandalone(t, e2eApp, newRoot(t, newHub(), azuritetest.Start(t), nil))

	answered := a.start("Waits", nil)
	if got := a.call(http.MethodPost, strings.ReplaceAll(answered.SendEventPostURI, "{eventName}", "Answer"), "yes"); got.status != http.StatusAccepted {
		t.Fatalf("raise event: %d %s", got.status, got.body)
	}
	a.completed(answered.StatusQueryGetURI, 30*time.Second, `"yes"`)
	if got := a.call(http.MethodPost, strings.ReplaceAll(answered.SendEventPostURI, "{eventName}", "Answer"), "again"); got.status != http.StatusGone {
		t.Errorf("raise event for an ended instance: %d %s, want 410", got.status, got.body)
	}

	stopped := a.start("Waits", nil)
	if got := a.call(http.MethodPost, strings.ReplaceAll(stopped.TerminatePostURI, "{text}", "enough"), nil); got.status != http.StatusAccepted {
		t.Fatalf("terminate: %d %s", got.status, got.body)
	}
	if s := a.await(stopped.StatusQueryGetURI, 30*time.Second); s.RuntimeStatus != "Terminated" || string(s.Output) != `"enough"` {
		t.Errorf("%s with output %s, want Terminated with the reason", s.RuntimeStatus, s.Output)
	}

	late := a.start("TimesOut", nil)
	a.completed(late.StatusQueryGetURI, 30*time.Second, `"nobody answered"`)
}

func TestStandalone_FailuresAreReportedAndTheProcessKeepsRunning(t *testing.T) {
	t.Parallel()
	a := startStandalone(t, e2eApp, newRoot(t, newHub(), azuritetest.Start(t), nil))
	for _, test := range []struct {
		orchestrator string
		input        any
		want         string // part of the output
	}{
		{"ActivityPanics", nil, "the activity's own panic"},
		{"OrchestratorPanics", nil, "index out of range [1] with length 0"},
		{"ActivityFails", "the disk is full", "the disk is full"},
		{"Steps", "not a walk", "Walk"},
	} {
		t.Run(test.orchestrator, func(t *testing.T) {
			s := a.await(a.start(test.orchestrator, test.input).StatusQueryGetURI, 30*time.Second)
			if s.RuntimeStatus != "Failed" || !strings.Contains(string(s.Output), test.want) {
				t.Errorf("%s with output %s, want Failed with %q in it", s.RuntimeStatus, s.Output, test.want)
			}
		})
	}
	if got := a.call(http.MethodGet, "/api/panic", nil); got.status != http.StatusInternalServerError {
		t.Errorf("a route that panics: %d %s, want 500", got.status, got.body)
	}
	a.completed(a.start("Steps", map[string]int{"steps": 2}).StatusQueryGetURI, 30*time.Second, "[1,4]")
}

func TestStandalone_AnUnknownActivityIsHeldBackAndLogged(t *testing.T) {
	t.Parallel()
	a := startStandalone(t, e2eApp, newRoot(t, newHub(), azuritetest.Start(t), nil))

	waiting := a.start("ActivityUnknown", nil)

	a.awaitLog(`NobodyHasThis`, 30*time.Second)
	if s := a.status(waiting.StatusQueryGetURI); s.RuntimeStatus != "Running" && s.RuntimeStatus != "Pending" {
		t.Errorf("%s, want an instance that waits for a worker with the activity", s.RuntimeStatus)
	}
	a.completed(a.start("Steps", map[string]int{"steps": 1}).StatusQueryGetURI, 30*time.Second, "[1]")
}

func TestStandalone_BackupCopiesAllFilesAndReturnsTheirBytes(t *testing.T) {
	t.Parallel()
	site, backup := t.TempDir(), t.TempDir()
	var total int
	for i := range 20 {
		path := filepath.Join(site, fmt.Sprint(i%3), fmt.Sprintf("page %d.html", i))
		text := strings.Repeat("x", i*100)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		total += len(text)
	}
	a := startStandalone(t, sampleApp, newRoot(t, newHub(), azuritetest.Start(t), nil), "BACKUP_DIRECTORY="+backup)

	a.completed(a.start("E2_BackupSiteContent", site).StatusQueryGetURI, 60*time.Second, fmt.Sprint(total))

	for i := range 20 {
		copied, err := os.ReadFile(filepath.Join(backup, site, fmt.Sprint(i%3), fmt.Sprintf("page %d.html", i)))
		if err != nil || len(copied) != i*100 {
			t.Errorf("copy of page %d: %d bytes, %v; want %d", i, len(copied), err, i*100)
		}
	}
}

func TestStandalone_MonitorDetectsANewFile(t *testing.T) {
	t.Parallel()
	a := startStandalone(t, sampleApp, newRoot(t, newHub(), azuritetest.Start(t), nil))
	file := filepath.Join(t.TempDir(), "ready")
	watch := map[string]any{"file": file, "everySeconds": 0.5}

	seen := a.start("E3_Monitor", watch)
	eventually(t, 30*time.Second, "the second check", func() bool {
		return strings.Contains(string(a.status(seen.StatusQueryGetURI).CustomStatus), "2 checks")
	})
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}

	a.completed(seen.StatusQueryGetURI, 30*time.Second, "true")
	watch["file"], watch["forSeconds"] = file+"-never", 1
	a.completed(a.start("E3_Monitor", watch).StatusQueryGetURI, 30*time.Second, "false")
}

func TestStandalone_PhoneVerificationAcceptsTheCodeThatItSent(t *testing.T) {
	t.Parallel()
	a := startStandalone(t, sampleApp, newRoot(t, newHub(), azuritetest.Start(t), nil))
	answer := func(s checkStatus, code any) {
		t.Helper()
		if got := a.call(http.MethodPost, strings.ReplaceAll(s.SendEventPostURI, "{eventName}", "ChallengeResponse"), code); got.status != http.StatusAccepted {
			t.Fatalf("raise event: %d %s", got.status, got.body)
		}
	}

	right := a.start("E4_SmsPhoneVerification", "+12065550100")
	code := a.awaitLog(`SMS to \+12065550100: your verification code is (\d+)`, 30*time.Second)[1]
	answer(right, "not a number")
	answer(right, json.Number(code))
	a.completed(right.StatusQueryGetURI, 30*time.Second, "true")

	wrong := a.start("E4_SmsPhoneVerification", "+12065550101")
	for range 3 {
		answer(wrong, 1)
	}
	a.completed(wrong.StatusQueryGetURI, 30*time.Second, "false")
}
