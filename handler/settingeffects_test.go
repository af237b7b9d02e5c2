package handler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
	"github.com/durablefunctions-go/durablefunctions/handler/processtest"
	"github.com/labstack/echo/v4"
)

// An effect is the observable effect of a setting on a running app.
type effect struct {
	path   string
	values map[string]any           // JSON value to observed effect
	see    func(a *settingsApp) any // uses the app and returns the observed effect
	with   []string                 // further settings, PATH=VALUE
	hosted bool                     // behind the host
	either bool                     // the effect is the same on hubs of the other types, which are tested, too
	idle   bool                     // only a client, without a worker
	// variable names an environment variable to test instead of a setting. values contains its texts.
	variable string
	process  settings.Environment // the other variables
}

// Changes each setting that has an effect in the host.json of an app on storage in memory. The effect
// is observed in the app's answers, in its requests to the storage and to others, and in its functions.
func TestSettings_EachHasItsEffectOnWhatTheAppDoes(t *testing.T) {
	t.Parallel()
	effects := map[string]effect{}
	for _, e := range settingEffects() {
		effects[e.path] = e
	}
	for n, row := range settingRows() {
		e, seen := effects[row.Path]
		delete(effects, row.Path)
		if seen == (row.NeverEffective != "") {
			t.Errorf("%s: in the list of effects: %v; without effect in the table: %v", row.Path, seen, row.NeverEffective != "")
		}
		different := map[any]bool{}
		for value, want := range e.values {
			different[want] = true
			hubs := hubsOf(e)
			for i, hub := range hubs {
				t.Run(fmt.Sprintf("%s=%s, %v", row.Path, value, hub), func(t *testing.T) {
					t.Parallel()
					if i != n%len(hubs) { // a short run tests one type of hub per setting
						processtest.SkipInShortRuns(t)
					}
					found, err := settings.ParseHostJSON([]byte(wrapped(row.FullPath(), value)))
					if err != nil {
						t.Fatal(err)
					}
					e := e
					if hub != AzureStorage {
						e.with = append(slices.Clone(e.with), "storageProvider.type="+hub.String())
					}
					e.checkEffect(t, found, want)
				})
			}
		}
		if seen && len(different) < 2 {
			t.Errorf("%s: one cannot see which value it has", row.Path)
		}
	}
	for path := range effects {
		t.Errorf("setting %s does not exist", path)
	}
}

// A setting has its effect on each type of hub, is independent of the hub, or the page lists its types of hubs. For the
// settings that follow the type, a notice says that they have no effect on another type.
func TestSettings_ApplyToEachTypeOfHubOrAreListed(t *testing.T) {
	t.Parallel()
	independent := []string{versionPath, timeoutPath, routePrefixPath, "hubName", "maxEntityOperationBatchSize", "storageProvider.type"}
	for _, e := range settingEffects() {
		stores := storesOf(e.path)
		everywhere := e.either || slices.Contains(independent, e.path) || strings.HasPrefix(e.path, "httpSettings.") || strings.HasPrefix(e.path, "notifications.")
		if everywhere == (stores != nil) {
			t.Errorf("%s: tested on each type of hub or independent of it: %v; applies to %v", e.path, everywhere, stores)
		}
		for _, store := range []StorageType{Embedded, PartitionLog} {
			for value := range e.values {
				if value == `""` || e.path == "entityMessageReorderWindowInMinutes" { // unset; before the type
					continue
				}
				found, err := settings.ParseHostJSON([]byte(wrapped(settings.DurableTaskPath+"."+e.path, value)))
				if err != nil {
					t.Fatal(err)
				}
				cfg := configure(settings.Environment{}, found, []string{"AzureFunctionsJobHost__extensions__durableTask__storageProvider__type=" + store.String()})
				applies := stores == nil || slices.Contains(stores, store)
				noted := slices.ContainsFunc(cfg.Notices, func(n string) bool {
					return strings.HasPrefix(n, "The setting "+settings.DurableTaskPath+"."+e.path+" has no effect")
				})
				if applies == noted {
					t.Errorf("%s=%s with the type %v: notice %v in %q", e.path, value, store, noted, cfg.Notices)
				}
				break
			}
		}
	}
}

// The same for environment variables. Variables that a program reads at its start are tested with a
// program.
func TestEnvironment_EachVariableHasItsEffectOnWhatTheAppDoes(t *testing.T) {
	t.Parallel()
	turned := map[string]bool{}
	for variable := range programEffects {
		turned[variable] = true
	}
	for _, e := range variableEffects() {
		turned[e.variable] = true
		for value, want := range e.values {
			t.Run(e.variable+"="+value, func(t *testing.T) {
				t.Parallel()
				e := e // a copy: other subtests change it meanwhile
				fields := reflect.ValueOf(&e.process).Elem()
				for i := range fields.NumField() {
					if fields.Type().Field(i).Tag.Get("envconfig") == e.variable {
						fields.Field(i).SetString(value)
					}
				}
				e.checkEffect(t, settings.New(), want)
			})
		}
	}
	for field := range reflect.TypeFor[settings.Environment]().Fields() {
		if name := field.Tag.Get("envconfig"); !turned[name] {
			t.Errorf("no test covers the effect of %s", name)
		}
	}
	page, err := os.ReadFile(settingsPage)
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n## Environment variables\n")
	table, _, _ = strings.Cut(table, "\n## ")
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		names, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), "|") // of the first column
		for _, match := range regexp.MustCompile("`([A-Z][A-Za-z_]+)`").FindAllStringSubmatch(names, -1) {
			elsewhere := strings.HasPrefix(match[1], "OTEL_") || match[1] == "AzureWebJobsStorage" // TestTelemetry_IsOnOnlyIfTheEnvironmentEnablesIt; the effects of all settings
			if !turned[match[1]] && !elsewhere {
				t.Errorf("no test covers the effect of %s, which %s lists", match[1], settingsPage)
			}
			delete(turned, match[1])
		}
	}
	for name := range turned {
		t.Errorf("%s has no word on %s", settingsPage, name)
	}
}

// checkEffect runs an app in a bubble and compares the observed effect.
func (e effect) checkEffect(t *testing.T, found settings.Settings, want any) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		if got := runSettingsApp(t, e, found); got != want {
			t.Errorf("%v is seen, want %v", got, want)
		}
	})
}

// hubsOf returns the types of hubs on which an effect is tested.
func hubsOf(e effect) []StorageType {
	if e.either {
		return []StorageType{AzureStorage, Embedded, PartitionLog}
	}
	return []StorageType{AzureStorage}
}

// wrapped returns a host.json with one setting.
func wrapped(path, value string) string {
	for names := strings.Split(path, "."); len(names) > 0; names = names[:len(names)-1] {
		value = fmt.Sprintf("{%q: %s}", names[len(names)-1], value)
	}
	return value
}

// A settingsApp is an app that runs in a bubble with a storage account in memory.
type settingsApp struct {
	*testing.T

	cfg     Config
	server  *Server
	account *azuritetest.Account
	began   time.Time

	mu      sync.Mutex // guards the fields below
	sent    []sent
	answers []int          // statuses for the app's own requests; the last one repeats
	runs    int            // number of runs of orchestrators, including replays
	atOnce  map[string]int // running calls per function
	peaks   map[string]int // largest number of running calls
	hold    chan struct{}  // closed to release waiting calls
}

// sent is a request that the app has sent.
type sent struct {
	at   time.Duration
	text string // method, host, path and query, headers and body
}

// runSettingsApp runs an app with a host.json and returns the observed effect.
func runSettingsApp(t *testing.T, e effect, found settings.Settings) any {
	a := &settingsApp{
		T: t, account: azuritetest.NewSimulatedAccount(), began: time.Now(), answers: []int{http.StatusOK},
		atOnce: map[string]int{}, peaks: map[string]int{}, hold: make(chan struct{}),
	}
	defer a.account.End()
	environ := []string{
		"AzureWebJobsStorage=" + a.account.ConnectionString(), "TOPIC_KEY=one", "OTHER_KEY=two",
		"Second=" + strings.Replace(a.account.ConnectionString(), "AccountName=sim", "AccountName=second", 1),
	}
	for _, setting := range e.with {
		name, value, _ := strings.Cut(setting, "=")
		environ = append(environ, "AzureFunctionsJobHost__extensions__durableTask__"+strings.ReplaceAll(name, ".", "__")+"="+value)
	}
	if e.hosted {
		e.process.HandlerPort = "1"
	}
	a.cfg = configure(e.process, found, environ)
	a.cfg.Root, a.cfg.Logger = t.TempDir(), slog.New(slog.DiscardHandler)
	a.cfg.Storage.WorkerID = "w"
	a.cfg.Storage.Transport = a.recorded(a.account.Worker("w").Do)
	a.cfg.Worker.HTTP.Transport, a.cfg.EventGrid.Transport = a.recorded(a.answer), a.recorded(a.answer)
	a.server = New(a.app(), a.cfg)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		if e.idle {
			a.server.state.SetReady()
			ended <- nil
		} else {
			ended <- a.server.work(ctx)
		}
	}()
	defer func() {
		close(a.hold)
		stop()
		if err := errors.Join(<-ended, a.server.hub.Close()); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Second) // until an orchestrator that was abandoned has slept
	}()
	return e.see(a)
}

// A recorded sends requests and records them.
type recorded func(*http.Request) (*http.Response, error)

func (r recorded) Do(req *http.Request) (*http.Response, error)        { return r(req) }
func (r recorded) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }

func (a *settingsApp) recorded(send recorded) recorded {
	return func(r *http.Request) (*http.Response, error) {
		var body []byte
		if r.Body != nil {
			body, _ = io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		text, _ := url.QueryUnescape(r.URL.RequestURI())
		text = fmt.Sprintf("%s %s%s %v %s", r.Method, r.URL.Host, text, r.Header, body)
		a.mu.Lock()
		a.sent = append(a.sent, sent{time.Since(a.began), text})
		a.mu.Unlock()
		return send(r)
	}
}

// answer answers the app's requests to services other than the storage.
func (a *settingsApp) answer(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := httptest.NewRecorder()
	w.Header().Set("Location", "https://other.example/status")
	w.WriteHeader(a.answers[0])
	if len(a.answers) > 1 {
		a.answers = a.answers[1:]
	}
	response := w.Result()
	response.Request = r
	return response, nil
}

// requests returns the requests that match a pattern: the last group of the pattern, and their times.
func (a *settingsApp) requests(pattern string) (texts []string, at []time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	expression := regexp.MustCompile("(?s)" + pattern)
	for _, s := range a.sent {
		if match := expression.FindStringSubmatch(s.text); match != nil {
			texts, at = append(texts, match[len(match)-1]), append(at, s.at)
		}
	}
	return texts, at
}

// lately returns the time between the last two requests that match a pattern, rounded to seconds.
func (a *settingsApp) lately(pattern string) time.Duration {
	_, at := a.requests(pattern)
	if len(at) < 2 {
		a.Fatalf("%d requests match %s, want several", len(at), pattern)
	}
	return (at[len(at)-1] - at[len(at)-2]).Round(time.Second)
}

// first returns the last group of a pattern in the first request that matches.
func (a *settingsApp) first(pattern string) string {
	texts, _ := a.requests(pattern)
	if len(texts) == 0 {
		a.Fatalf("no request matches %s", pattern)
	}
	return texts[0]
}

// number returns the number of requests that match a pattern.
func (a *settingsApp) number(pattern string) int {
	texts, _ := a.requests(pattern)
	return len(texts)
}

// ask sends a request to the management API.
func (a *settingsApp) ask(method, path, body string, headers ...string) *httptest.ResponseRecorder {
	return call(a.server, method, managed+path, body, headers...)
}

// start starts an instance of an orchestrator with the ID i and waits for a time.
func (a *settingsApp) start(name, input string, passes time.Duration) int {
	a.Helper()
	w := a.ask("POST", "orchestrators/"+name, input)
	time.Sleep(passes)
	return w.Code
}

// status returns the status of instance i.
func (a *settingsApp) status() (status struct{ RuntimeStatus, Output any }) {
	_ = json.Unmarshal(a.ask("GET", "instances/i", "").Body.Bytes(), &status) // the answer is empty if the instance does not exist
	return status
}

// app returns the functions for all effects.
func (a *settingsApp) app() App {
	nap := func(context.Context, int) (durable.Void, error) {
		return durable.Void{}, a.napping("activity")
	}
	fan := func(ctx *durable.Context, n int) (durable.Void, error) {
		var tasks []*durable.Task[durable.Void]
		for range n {
			tasks = append(tasks, durable.ActivityName[int, durable.Void]("Nap").Call(ctx, 7))
		}
		_, err := durable.AwaitAll(ctx, tasks...)
		return durable.Void{}, err
	}
	haul := func(ctx *durable.Context, _ durable.Void) (durable.Void, error) {
		var tasks []*durable.Task[durable.Void]
		for range 3 {
			tasks = append(tasks, durable.ActivityName[string, durable.Void]("Lift").Call(ctx, strings.Repeat("x", 700<<10)))
		}
		_, err := durable.AwaitAll(ctx, tasks...)
		return durable.Void{}, err
	}
	chain := func(ctx *durable.Context, n int) (durable.Void, error) {
		a.count(&a.runs)
		for range n {
			ctx.Sleep(2 * time.Second)
		}
		return durable.Void{}, nil
	}
	wait := func(ctx *durable.Context, _ durable.Void) (durable.Void, error) {
		a.count(&a.runs)
		for range 2 {
			if _, err := durable.Event[durable.Void]("E").Wait(ctx).Await(); err != nil {
				return durable.Void{}, err
			}
		}
		return durable.Event[durable.Void]("E").Wait(ctx).Await()
	}
	ask := func(ctx *durable.Context, _ durable.Void) (int, error) {
		answer, err := durable.CallHTTP(ctx, durable.HTTPRequest{URL: "https://one.example/", Header: http.Header{"X-Trace": {"me"}}}).Await()
		return answer.StatusCode, err
	}
	signal := func(ctx *durable.Context, key string) (durable.Void, error) {
		for range 2 {
			durable.SignalFrom(ctx, durable.EntityKey[napper](key), (*napper).Count, 1)
		}
		return durable.Void{}, nil
	}
	return App{
		Registrations: []*durable.Registration{
			durable.Orchestrator("Quick", quick),
			durable.Orchestrator("Broken", func(*durable.Context, durable.Void) (int, error) { return 0, errors.New("no") }),
			durable.Orchestrator("Hold", func(*durable.Context, durable.Void) (durable.Void, error) {
				return durable.Void{}, a.napping("orchestrator")
			}),
			durable.Orchestrator("Fan", fan), durable.Activity("Nap", nap),
			durable.Orchestrator("Haul", haul), durable.Activity("Lift", func(context.Context, string) (durable.Void, error) { return durable.Void{}, a.napping("lift") }),
			durable.Orchestrator("Chain", chain), durable.Orchestrator("Wait", wait), durable.Orchestrator("Ask", ask),
			durable.Orchestrator("Signal", signal),
			durable.Orchestrator("Version", func(ctx *durable.Context, _ durable.Void) (string, error) { return string(ctx.Version()), nil }),
			durable.Orchestrator("Fickle", func(ctx *durable.Context, _ durable.Void) (durable.Void, error) {
				if ctx.Sleep(time.Second); ctx.IsReplaying() {
					ctx.Sleep(time.Second)
				}
				return durable.ActivityName[int, durable.Void]("Nap").Call(ctx, 7).Await()
			}),
			durable.Orchestrator("Lost", func(ctx *durable.Context, _ durable.Void) (durable.Void, error) {
				return durable.ActivityName[durable.Void, durable.Void]("Nowhere").Call(ctx, durable.Void{}).Await()
			}),
			durable.Entity("Napper", durable.Op("nap", func(_ *napper, _ *durable.EntityContext, n int) (int, error) {
				return n, a.napping("entity")
			}), durable.Op("fail", (*napper).Fail), durable.Op("count", (*napper).Count)),
		},
		Triggers: []Trigger{Manual("Run", func(ctx context.Context, _ *Invocation, _ string) error {
			<-ctx.Done()
			return nil
		})},
		Routes: func(api *echo.Group, _ *durable.Client) {
			api.POST("/hold", func(c echo.Context) error {
				if _, err := io.ReadAll(c.Request().Body); err != nil {
					return err
				}
				<-a.hold
				return c.NoContent(http.StatusNoContent)
			})
		},
	}
}

type napper int

// Fail changes the state and fails.
func (n *napper) Fail(_ *durable.EntityContext, _ int) (int, error) {
	*n = 100
	return 0, errors.New("no")
}

// Count increments the state.
func (n *napper) Count(_ *durable.EntityContext, _ int) (int, error) {
	*n++
	return 0, nil
}

func (a *settingsApp) count(n *int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	*n++
}

// napping takes ten seconds and counts concurrent calls.
func (a *settingsApp) napping(what string) error {
	a.mu.Lock()
	a.atOnce[what]++
	a.peaks[what] = max(a.peaks[what], a.atOnce[what])
	a.mu.Unlock()
	time.Sleep(10 * time.Second)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.atOnce[what]--
	return nil
}
