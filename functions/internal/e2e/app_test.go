//go:build unix

package e2e_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/tidwall/jsonc"
)

// newHub returns a unique task hub name.
func newHub() string { return "E2e" + strings.ReplaceAll(uuid.NewString(), "-", "")[:12] }

// newRoot returns a new script root with the repository's host.json for the given hub, its function.json, and
// a local.settings.json for the given storage. edit, if not nil, changes the durableTask section first.
func newRoot(t *testing.T, hub, connection string, edit func(durableTask map[string]any)) string {
	t.Helper()
	root := t.TempDir()
	var host struct {
		Version         string          `json:"version"`
		FunctionTimeout string          `json:"functionTimeout"`
		CustomHandler   json.RawMessage `json:"customHandler"`
		Extensions      struct {
			HTTP        json.RawMessage `json:"http"`
			DurableTask map[string]any  `json:"durableTask"`
		} `json:"extensions"`
	}
	readJSON(t, filepath.Join(checkout, "host.json"), &host)
	host.Extensions.DurableTask["hubName"] = hub
	if edit != nil {
		edit(host.Extensions.DurableTask)
	}
	writeJSON(t, filepath.Join(root, "host.json"), host)

	var local struct {
		IsEncrypted bool              `json:"IsEncrypted"`
		Values      map[string]string `json:"Values"`
	}
	readJSON(t, filepath.Join(checkout, "local.settings.json"), &local)
	local.Values["AzureWebJobsStorage"] = connection
	if connection == "" {
		delete(local.Values, "AzureWebJobsStorage")
	}
	writeJSON(t, filepath.Join(root, "local.settings.json"), local)

	var function any
	readJSON(t, filepath.Join(checkout, "functions", "function.json"), &function)
	writeJSON(t, filepath.Join(root, "functions", "function.json"), function)
	return root
}

func readJSON(t *testing.T, path string, v any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(jsonc.ToJSON(text), v)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func writeJSON(t *testing.T, path string, v any) {
	t.Helper()
	text, err := json.MarshalIndent(v, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = os.WriteFile(path, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// app is a running program that serves HTTP: the app alone, or the Functions host with the app as its
// handler.
type app struct {
	*program
	url  string
	root string
}

// startStandalone starts a program under test without the host and waits until it has opened its hub.
func startStandalone(t *testing.T, built func() (string, error), root string, env ...string) *app {
	t.Helper()
	a := launchStandalone(t, built, root, env...)
	eventually(t, 0, "the app to be ready", func() bool {
		got, err := a.try(http.MethodGet, "/health/ready", nil)
		return err == nil && got.status == http.StatusOK
	})
	return a
}

// launchStandalone starts a program under test without the host and waits until it listens.
func launchStandalone(t *testing.T, built func() (string, error), root string, env ...string) *app {
	t.Helper()
	p := run(t, root, append(environment("PORT=0", "DURABLE_LOG_LEVEL=debug"), env...), binary(t, built))
	return &app{p, p.awaitLog(`msg=listening address=(\S+)`, 0)[1], root}
}

// answer is the response to a request.
type answer struct {
	status int
	header http.Header
	body   string
}

// call sends a request. target is a path of the app or a complete URL. A body that is not nil is sent as
// JSON.
func (a *app) call(method, target string, body any) answer {
	a.t.Helper()
	got, err := a.try(method, target, body)
	if err != nil {
		a.t.Fatal(err)
	}
	return got
}

func (a *app) try(method, target string, body any) (answer, error) {
	return a.tryWithin(a.t.Context(), method, target, body)
}

func (a *app) tryWithin(ctx context.Context, method, target string, body any) (answer, error) {
	if strings.HasPrefix(target, "/") {
		target = a.url + target
	}
	text := ""
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return answer{}, err
		}
		text = string(encoded)
	}
	req, err := http.NewRequestWithContext(ctx, method, target, strings.NewReader(text))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	answered, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(answered)}, err
}

// checkStatus is the payload of a 202 response.
type checkStatus struct {
	ID                    string `json:"id"`
	StatusQueryGetURI     string `json:"statusQueryGetUri"`
	SendEventPostURI      string `json:"sendEventPostUri"`
	TerminatePostURI      string `json:"terminatePostUri"`
	RewindPostURI         string `json:"rewindPostUri"`
	PurgeHistoryDeleteURI string `json:"purgeHistoryDeleteUri"`
	RestartPostURI        string `json:"restartPostUri"`
	SuspendPostURI        string `json:"suspendPostUri"`
	ResumePostURI         string `json:"resumePostUri"`
}

// start starts an orchestration through the management API.
func (a *app) start(name string, input any) checkStatus {
	a.t.Helper()
	var got answer
	eventually(a.t, 15*time.Second, "an answer to the start of "+name, func() bool {
		got = a.call(http.MethodPost, "/api/durabletask/orchestrators/"+name, input)
		return got.status != http.StatusServiceUnavailable // the storage is slow, or the app has just started
	})
	if got.status != http.StatusAccepted {
		a.t.Fatalf("start %s: %d %s", name, got.status, got.body)
	}
	return decode[checkStatus](a.t, got.body)
}

// status is the state of an instance in the management API.
type status struct {
	Name          string          `json:"name"`
	InstanceID    string          `json:"instanceId"`
	RuntimeStatus string          `json:"runtimeStatus"`
	Input         json.RawMessage `json:"input"`
	CustomStatus  json.RawMessage `json:"customStatus"`
	Output        json.RawMessage `json:"output"`
	HistoryEvents []historyEvent  `json:"historyEvents"`
}

// historyEvent is an element of status.HistoryEvents.
type historyEvent struct {
	EventType    string          `json:"EventType"`
	FunctionName string          `json:"FunctionName"`
	Name         string          `json:"Name"`
	Result       json.RawMessage `json:"Result"`
	Reason       string          `json:"Reason"`
}

// status reads the status of an instance from a URL of its 202 response.
func (a *app) status(url string) status {
	a.t.Helper()
	got := a.call(http.MethodGet, url, nil)
	if got.status != http.StatusOK && got.status != http.StatusAccepted {
		a.t.Fatalf("GET %s: %d %s", url, got.status, got.body)
	}
	return decode[status](a.t, got.body)
}

// await waits until an instance has ended and returns its status.
func (a *app) await(url string, timeout time.Duration) status {
	a.t.Helper()
	var last status
	eventually(a.t, timeout, "the end of "+url, func() bool {
		got, err := a.try(http.MethodGet, url, nil)
		if err != nil || got.status != http.StatusOK {
			return false
		}
		last = decode[status](a.t, got.body)
		return ended(last.RuntimeStatus)
	})
	return last
}

// completed waits until an instance has ended and checks that it has completed with the given output.
func (a *app) completed(url string, timeout time.Duration, wantOutput string) {
	a.t.Helper()
	got := a.await(url, timeout)
	if got.RuntimeStatus != "Completed" || string(got.Output) != wantOutput {
		a.t.Errorf("%s is %s with output %s, want Completed with %s", got.InstanceID, got.RuntimeStatus, got.Output, wantOutput)
	}
}

func ended(runtimeStatus string) bool {
	return slices.Contains([]string{"Completed", "Failed", "Terminated", "Canceled"}, runtimeStatus)
}

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}
