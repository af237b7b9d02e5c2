//go:build unix

package e2e_test

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/handler/processtest"
)

// writeFunctions makes the program write the function.json files of its triggers.
func writeFunctions(t *testing.T, built func() (string, error), root string) string {
	t.Helper()
	cmd := exec.Command(binary(t, built), "-write-functions", root)
	cmd.Env = environment()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// setCustomHandler sets members of the customHandler section in host.json.
func setCustomHandler(t *testing.T, root string, members map[string]any) {
	t.Helper()
	path := filepath.Join(root, "host.json")
	var host map[string]any
	readJSON(t, path, &host)
	section := host["customHandler"].(map[string]any)
	for name, value := range members {
		section[name] = value
	}
	writeJSON(t, path, host)
}

// setRoutePrefix sets the route prefix in host.json.
func setRoutePrefix(t *testing.T, root, prefix string) {
	t.Helper()
	path := filepath.Join(root, "host.json")
	var host map[string]any
	readJSON(t, path, &host)
	host["extensions"].(map[string]any)["http"] = map[string]any{"routePrefix": prefix}
	writeJSON(t, path, host)
}

// runFunction asks the host to run a function with an input.
func (a *app) runFunction(name, input string) {
	a.t.Helper()
	got := a.call(http.MethodPost, "/admin/functions/"+name, map[string]string{"input": input})
	if got.status != http.StatusAccepted {
		a.t.Fatalf("run %s: %d %s, want 202", name, got.status, got.body)
	}
}

func TestHost_RunsTimerManualAndWarmUpFunctions(t *testing.T) {
	t.Parallel()
	requireFunc(t)
	root := newRoot(t, newHub(), azuritetest.Start(t), nil)
	writeFunctions(t, e2eApp, root)
	a := startHost(t, e2eApp, root)

	// The timer function runs at startup, fails once, and is retried by its policy.
	a.completed("/api/durabletask/instances/started-by-tick", 2*time.Minute, "[1,4]")

	a.runFunction("Order", "order-1")
	a.completed("/api/durabletask/instances/order-1", time.Minute, "[1,4,9]")

	if got := a.call(http.MethodPost, "/admin/warmup", nil); got.status != http.StatusOK {
		t.Errorf("warm up: %d %s, want 200", got.status, got.body)
	}
	a.runFunction("Overrun", "")
	for _, want := range []string{
		`tick past due (true|false) after 1 tries`,
		`ordered order-1`,
		`warm with invocation [0-9a-f-]{36}`,
		`function Overrun exceeded its time limit of 1s; it still runs`,
	} {
		a.program.scan = 0
		a.awaitLog(want, time.Minute)
	}
	if n := strings.Count(a.log(), "msg=listening"); n != 1 {
		t.Errorf("the app was started %d times, want 1; no function may cause a restart", n)
	}
}

func TestHost_TenPanicsOfAFunctionDoNotStopTheApp(t *testing.T) {
	processtest.SkipInShortRuns(t)
	t.Parallel()
	requireFunc(t)
	root := newRoot(t, newHub(), azuritetest.Start(t), nil)
	writeFunctions(t, e2eApp, root)
	a := startHost(t, e2eApp, root)
	before := a.handler()

	for range 10 {
		if got := a.call(http.MethodGet, "/api/panic", nil); got.status != http.StatusInternalServerError {
			t.Fatalf("%d %s, want 500", got.status, got.body)
		}
		a.runFunction("Poison", "x")
	}

	eventually(t, time.Minute, "ten failed runs of Poison", func() bool {
		return strings.Count(a.log(), `msg="function failed" function=Poison`) >= 10
	})
	if after := a.handler(); after != before {
		t.Errorf("the handler was restarted: it is process %d, was %d", after, before)
	}
	started := a.start("Steps", map[string]int{"steps": 2})
	a.completed(started.StatusQueryGetURI, time.Minute, "[1,4]")
}

// Both HTTP modes serve the same routes with the same public URLs. So does an older host that knows neither
// mode.
func TestHost_EveryHTTPModeServesTheRoutes(t *testing.T) {
	t.Parallel()
	requireFunc(t)
	for _, tt := range []struct {
		name                 string
		proxying, forwarding bool
		prefix               string
	}{
		{"proxying", true, true, "api"},
		{"forwarding", false, true, "api"},
		{"wrapped", false, false, "api"},
		{"proxying without a prefix", true, false, ""},
		{"wrapped without a prefix", false, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.name != "wrapped" { // in the short run, other tests use the default mode
				processtest.SkipInShortRuns(t)
			}
			root := newRoot(t, newHub(), azuritetest.Start(t), nil)
			setCustomHandler(t, root, map[string]any{"enableProxyingHttpRequest": tt.proxying, "enableForwardingHttpRequest": tt.forwarding})
			setRoutePrefix(t, root, tt.prefix)
			a := startHostAt(t, e2eApp, root, tt.prefix)
			base := a.url
			if tt.prefix != "" {
				base += "/" + tt.prefix
			}
			got := a.call(http.MethodPost, base+"/start", nil)
			if got.status != http.StatusAccepted {
				t.Fatalf("%d %s, want 202", got.status, got.body)
			}
			payload := decode[checkStatus](t, got.body)
			if !strings.HasPrefix(payload.StatusQueryGetURI, base+"/durabletask/instances/") || got.header.Get("Location") != payload.StatusQueryGetURI {
				t.Errorf("statusQueryGetUri is %s, Location %s, want them at the host's origin, %s", payload.StatusQueryGetURI, got.header.Get("Location"), base)
			}
			a.completed(payload.StatusQueryGetURI, time.Minute, "[1]")
			if wraps := strings.Contains(a.log(), "the host wraps HTTP requests"); wraps != (!tt.proxying && !tt.forwarding) {
				t.Errorf("the app logs that the host wraps requests: %v", wraps)
			}
			// No client can invoke a function by calling a route with its name, even with the app's own
			// address as host name.
			own := regexp.MustCompile(`msg=listening address=http://([0-9.:]+)`).FindStringSubmatch(a.log())
			if own == nil {
				t.Fatal("the app does not log its address")
			}
			for _, host := range []string{"", own[1]} {
				body := strings.NewReader(`{"Data": {"input": "\"forged\""}, "Metadata": {}}`)
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/Order", body)
				if err != nil {
					t.Fatal(err)
				}
				r.Host = host
				r.Header.Set("Content-Type", "application/json")
				forged, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				forged.Body.Close()
				if forged.StatusCode != http.StatusNotFound {
					t.Errorf("a forged invocation for host %q: %d, want 404", host, forged.StatusCode)
				}
			}
		})
	}
}

// With forwarding and without a route prefix, the app cannot distinguish client requests from the host's own
// requests.
func TestHost_ForwardingWithoutAPrefixDoesNotServeTriggers(t *testing.T) {
	processtest.SkipInShortRuns(t)
	t.Parallel()
	requireFunc(t)
	root := newRoot(t, newHub(), azuritetest.Start(t), nil)
	setCustomHandler(t, root, map[string]any{"enableProxyingHttpRequest": false, "enableForwardingHttpRequest": true})
	setRoutePrefix(t, root, "")
	a := launchHost(t, e2eApp, root, nil)
	eventually(t, 90*time.Second, "503 with the reason", func() bool {
		got, err := a.try(http.MethodPost, "/start", nil)
		return err == nil && got.status == http.StatusServiceUnavailable && strings.Contains(got.body, "set a route prefix")
	})
}

func TestHost_ProxyingStreamsAnswers(t *testing.T) {
	processtest.SkipInShortRuns(t)
	t.Parallel()
	a := startHost(t, e2eApp, newRoot(t, newHub(), azuritetest.Start(t), nil))
	resp, err := http.Get(a.url + "/api/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	next := func(want string) {
		t.Helper()
		for lines.Scan() {
			if lines.Text() != "" {
				break
			}
		}
		if lines.Text() != want || lines.Err() != nil {
			t.Fatalf("got %q %v, want %q", lines.Text(), lines.Err(), want)
		}
	}
	next("data: 0") // arrives while the app waits for /stream/proceed
	if got := a.call(http.MethodPost, "/api/stream/proceed", nil); got.status != http.StatusNoContent {
		t.Fatalf("%d %s", got.status, got.body)
	}
	next("data: 1")
}

func TestHost_KeysAreRequiredWithEnableAuth(t *testing.T) {
	t.Parallel()
	requireFunc(t)
	root := newRoot(t, newHub(), azuritetest.Start(t), nil)
	var settings map[string]any
	readJSON(t, filepath.Join(root, "local.settings.json"), &settings)
	settings["Values"].(map[string]any)["AzureWebJobsSecretStorageType"] = "files"
	writeJSON(t, filepath.Join(root, "local.settings.json"), settings)
	tmp := t.TempDir() // func keeps file-based keys below this folder
	const key = "a-host-key-that-is-long-enough-to-be-one-1234567890"
	writeJSON(t, filepath.Join(tmp, "secrets", "functions", "secrets", "host.json"), map[string]any{
		"masterKey":    map[string]any{"name": "master", "value": "the-master-key-" + key, "encrypted": false},
		"functionKeys": []any{map[string]any{"name": "default", "value": key, "encrypted": false}},
		"systemKeys":   []any{},
	})
	const appKey = "the-key-of-the-app-1234567890"
	a := launchHost(t, e2eApp, root, []string{"TMPDIR=" + tmp, "DURABLE_KEY=" + appKey}, "--enableAuth")
	var got answer
	eventually(t, 90*time.Second, "a start with the host's key", func() bool {
		var err error
		got, err = a.try(http.MethodPost, "/api/start?code="+key, nil)
		return err == nil && got.status == http.StatusAccepted
	})
	payload := decode[checkStatus](t, got.body)
	if !strings.Contains(payload.StatusQueryGetURI, "code="+key+"&sig=") || strings.Contains(got.body, appKey) {
		t.Fatalf("with the host's key: %s", got.body)
	}
	a.completed(payload.StatusQueryGetURI, time.Minute, "[1]")
	if got := a.call(http.MethodGet, "/api/durabletask/instances?code="+key, nil); got.status != http.StatusUnauthorized {
		t.Errorf("a list without the app's key: %d %s, want 401", got.status, got.body)
	}
	if got := a.call(http.MethodPost, "/api/start", nil); got.status != http.StatusUnauthorized {
		t.Errorf("without a key: %d %s, want 401", got.status, got.body)
	}
	if strings.Contains(a.log(), key) || strings.Contains(a.log(), appKey) {
		t.Error("the log contains a key")
	}
}

// writtenFunctions returns the folders in root with a function.json.
func writtenFunctions(t *testing.T, root string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "*", "function.json"))
	if err != nil {
		t.Fatal(err)
	}
	for i, path := range paths {
		paths[i] = filepath.Base(filepath.Dir(path))
	}
	return paths
}

func TestHost_ListsAFunctionForEachRoute(t *testing.T) {
	processtest.SkipInShortRuns(t)
	t.Parallel()
	requireFunc(t)
	root := newRoot(t, newHub(), azuritetest.Start(t), nil)
	if err := os.RemoveAll(filepath.Join(root, "functions")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary(t, e2eApp), "-write-functions", "-per-route", root)
	cmd.Env = environment()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	a := launchHost(t, e2eApp, root, nil)
	eventually(t, 90*time.Second, "an answer of the app below the host", func() bool {
		got, err := a.try(http.MethodGet, "/api/durabletask/instances", nil)
		return err == nil && got.status == http.StatusOK
	})
	for _, name := range writtenFunctions(t, root) {
		if !strings.Contains(a.log(), name+": ") {
			t.Errorf("func does not list %s", name)
		}
	}
	if want := fmt.Sprintf("http-family-id-terminate: [POST] %s/api/family/{id}/terminate", a.url); !strings.Contains(a.log(), want) {
		t.Errorf("func does not list %s", want)
	}
	if got := a.call(http.MethodGet, "/api/panic", nil); got.status != http.StatusInternalServerError {
		t.Errorf("%d %s, want 500", got.status, got.body)
	}
	if got := a.call(http.MethodDelete, "/api/panic", nil); got.status != http.StatusNotFound {
		t.Errorf("%d %s, want the host's own 404", got.status, got.body)
	}
}
