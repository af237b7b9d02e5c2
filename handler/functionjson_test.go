package handler

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/triggers"
	"github.com/google/go-cmp/cmp"
	"github.com/labstack/echo/v4"
)

// hostRoot returns a folder with the given host.json.
func hostRoot(t *testing.T, hostJSON string) string {
	t.Helper()
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, settings.HostJSONFile), []byte(hostJSON), 0o644); err != nil {
		t.Fatal(err)
	}
	return root
}

// runWrite runs -write-functions for an app and returns its output.
func runWrite(t *testing.T, app App, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := writeFunctionsCommand(app, args, &out)
	return out.String(), err
}

func fileText(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const bundledHost = `{"version": "2.0", "extensionBundle": {"id": "Microsoft.Azure.Functions.ExtensionBundle", "version": "[4.*, 5.0.0)"}}`

// Compares the function.json of all triggers of the golden app with testdata/functions.json.
func TestWriteFunctions_WritesAllBindingsOfEachTrigger(t *testing.T) {
	t.Parallel()
	root := hostRoot(t, bundledHost)
	if _, err := runWrite(t, goldenApp(&sightings{}), root); err != nil {
		t.Fatal(err)
	}
	all := map[string]json.RawMessage{}
	for _, trigger := range goldenApp(&sightings{}).Triggers {
		all[trigger.Name()] = json.RawMessage(fileText(t, root, trigger.Name(), triggers.FileName))
	}
	current(t, "testdata/functions.json", indented(t, all))
}

func TestWriteFunctions_WritesServiceBusAndEventHubOutputsAndExponentialRetries(t *testing.T) {
	t.Parallel()
	root := hostRoot(t, bundledHost)
	app := App{Triggers: []Trigger{Timer("Tick", "0 * * * * *", nilTimer,
		ServiceBusOutput[string]("letters", "letters-to-send", Connection("Bus")),
		EventHubOutput[string]("readings", "meters", Connection("Hubs")),
		ExponentialRetry(5, 2*time.Second, 10*time.Minute))}}
	if _, err := runWrite(t, app, root); err != nil {
		t.Fatal(err)
	}
	var got struct{ Bindings, Retry any }
	if err := json.Unmarshal([]byte(fileText(t, root, "Tick", triggers.FileName)), &got); err != nil {
		t.Fatal(err)
	}
	type object = map[string]any
	want := []any{
		object{"type": "timerTrigger", "direction": "in", "name": "timer", "schedule": "0 * * * * *"},
		object{"type": "serviceBus", "direction": "out", "name": "letters", "queueName": "letters-to-send", "connection": "Bus"},
		object{"type": "eventHub", "direction": "out", "name": "readings", "eventHubName": "meters", "connection": "Hubs"},
	}
	if diff := cmp.Diff(want, got.Bindings); diff != "" {
		t.Errorf("bindings (-want +got):\n%s", diff)
	}
	retry := object{"strategy": "exponentialBackoff", "maxRetryCount": 5.0, "minimumInterval": "00:00:02", "maximumInterval": "00:10:00"}
	if diff := cmp.Diff(any(retry), got.Retry); diff != "" {
		t.Errorf("retry (-want +got):\n%s", diff)
	}
}

func TestWriteFunctions_ChangesOnlyItsOwnOutdatedFiles(t *testing.T) {
	t.Parallel()
	root := hostRoot(t, bundledHost)
	for name, text := range map[string]string{"mine": `{"bindings": []}`, "durable": "", "Letters": ""} {
		if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if text == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(root, name, triggers.FileName), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	first := App{Triggers: []Trigger{Queue("Letters", "letters", nil2), Timer("Tick", "0 * * * * *", nilTimer)}}
	says, err := runWrite(t, first, root)
	if want := "wrote " + filepath.Join(root, "Letters", triggers.FileName) + "\nwrote " + filepath.Join(root, "Tick", triggers.FileName) +
		"\nwrote " + filepath.Join(root, "durable-console", triggers.FileName) + "\n"; err != nil || says != want {
		t.Errorf("first: %v %s, want %s", err, says, want)
	}
	before, err := os.Stat(filepath.Join(root, "Letters", triggers.FileName))
	if err != nil {
		t.Fatal(err)
	}
	if says, err := runWrite(t, first, root); err != nil || says != "" {
		t.Errorf("again: %v %s, want silence", err, says)
	}
	after, err := os.Stat(filepath.Join(root, "Letters", triggers.FileName))
	if err != nil || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("a file that was right has been written: %v, %v, %v", before.ModTime(), after.ModTime(), err)
	}
	if err := os.WriteFile(filepath.Join(root, "Tick", "notes.txt"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	second := App{Triggers: []Trigger{Queue("Letters", "other", nil2)}}
	says, err = runWrite(t, second, root)
	if want := "wrote " + filepath.Join(root, "Letters", triggers.FileName) + "\nremoved " + filepath.Join(root, "Tick", triggers.FileName) + "\n"; err != nil || says != want {
		t.Errorf("second: %v %s, want %s", err, says, want)
	}
	if got := fileText(t, root, "mine", triggers.FileName); got != `{"bindings": []}` {
		t.Errorf("the file of another program is %s", got)
	}
	if _, err := os.Stat(filepath.Join(root, "Tick", "notes.txt")); err != nil {
		t.Error(err)
	}
	if _, err := runWrite(t, App{Triggers: []Trigger{Manual("mine", nil2)}}, root); err == nil || !strings.Contains(err.Error(), "was not written by -write-functions") {
		t.Errorf("over the file of another program: %v", err)
	}
}

// Anyone may call the console's function, and only the console through it.
func TestWriteFunctions_ConsoleFunctionIsAnonymous(t *testing.T) {
	t.Parallel()
	root := hostRoot(t, `{}`)
	if _, err := runWrite(t, App{}, root); err != nil {
		t.Fatal(err)
	}
	var got struct{ Bindings []map[string]any }
	if err := json.Unmarshal([]byte(fileText(t, root, "durable-console", triggers.FileName)), &got); err != nil {
		t.Fatal(err)
	}
	want := []map[string]any{{
		"type": "httpTrigger", "direction": "in", "name": "req", "authLevel": "anonymous",
		"methods": []any{"get", "head", "post"}, "route": "durabletask/console/{*path}",
	}, {"type": "http", "direction": "out", "name": "res"}}
	if diff := cmp.Diff(want, got.Bindings); diff != "" {
		t.Errorf("bindings (-want +got):\n%s", diff)
	}
	if _, err := runWrite(t, App{Triggers: []Trigger{Manual("Durable-Console", nil2)}}, root); err == nil || !strings.Contains(err.Error(), `two functions would have the name`) {
		t.Errorf("a trigger of that name: %v", err)
	}
}

func nilTimer(context.Context, *Invocation, TimerInfo) error { return nil }

func TestWriteFunctions_AddsTheBundleThatBindingsNeed(t *testing.T) {
	t.Parallel()
	queue := App{Triggers: []Trigger{Queue("Letters", "letters", nil2)}}
	timer := App{Triggers: []Trigger{Timer("Tick", "0 * * * * *", nilTimer)}}
	const commented = "// about {braces}\n{\n  // mine\n  \"version\": \"2.0\", /* here */\n}\n"
	root := hostRoot(t, commented)
	if says, err := runWrite(t, timer, root); err != nil || strings.Contains(says, "bundle") || fileText(t, root, settings.HostJSONFile) != commented {
		t.Errorf("a timer needs none: %v %s", err, says)
	}
	says, err := runWrite(t, queue, root)
	if err != nil || !strings.Contains(says, "added the extension bundle") || !strings.Contains(says, "function Letters has a queueTrigger") {
		t.Errorf("%v %s", err, says)
	}
	want := "// about {braces}\n{" + triggers.Bundle + "\n  // mine\n  \"version\": \"2.0\", /* here */\n}\n"
	if diff := cmp.Diff(want, fileText(t, root, settings.HostJSONFile)); diff != "" {
		t.Errorf("host.json (-want +got):\n%s", diff)
	}
	if says, err := runWrite(t, queue, root); err != nil || says != "" {
		t.Errorf("again: %v %s, want silence", err, says)
	}
	if says, err := runWrite(t, timer, root); err != nil || !strings.Contains(says, "removed the extension bundle") || fileText(t, root, settings.HostJSONFile) != commented {
		t.Errorf("without the queue: %v %s\n%s", err, says, fileText(t, root, settings.HostJSONFile))
	}
	own := strings.Replace(commented, "{\n", `{"extensionBundle": {"id": "Mine", "version": "[4.*, 5.0.0)"},`, 1)
	if says, err := runWrite(t, timer, hostRoot(t, own)); err != nil || strings.Contains(says, "bundle") {
		t.Errorf("a bundle of the app's own: %v %s", err, says)
	}
	output := App{Triggers: []Trigger{Timer("Tick", "0 * * * * *", nilTimer, QueueOutput[string]("out", "out"))}}
	if says, err := runWrite(t, output, hostRoot(t, `{}`)); err != nil || !strings.Contains(says, "added the extension bundle") {
		t.Errorf("an output: %v %s", err, says)
	}
}

func TestWriteFunctions_RefusesFunctionsThatTheHostCannotRun(t *testing.T) {
	t.Parallel()
	manual := func(name string, opts ...TriggerOption) Trigger { return Manual(name, nil2, opts...) }
	for _, tt := range []struct {
		trigger Trigger
		want    string
	}{
		{manual("1st"), "a name that the host does not accept"},
		{manual("host"), "a name that the host does not accept"},
		{manual("a b"), "a name that the host does not accept"},
		{manual(strings.Repeat("a", 129)), "a name that the host does not accept"},
		{On("O", "orchestrationTrigger", nil2), "two engines would work on one task hub"},
		{On("A", "activityTrigger", nil2), "they need no function.json"},
		{On("E", "EntityTrigger", nil2), "two engines"},
		{manual("C", InputOf[string]("client", "durableClient")), "Every function has the client as Invocation.Client"},
		{On("H", "httpTrigger", nil2), "add a route in App.Routes instead"},
		{On("Q", "queue", nil2), "the type of a trigger ends in Trigger"},
		{On("Q", "", nil2), "without a type"},
		{manual("B", OutputOf[string]("my out", "queue")), `the binding "my out": a name is a letter`},
		{manual("B", InputOf[string]("$return", "blob")), `the binding "$return"`},
		{manual("B", QueueOutput[string]("Input", "things")), `two bindings "Input"`},
		{manual("B", QueueOutput[string]("out", "Bad_Queue")), `the queue "Bad_Queue"`},
		{Queue("B", "q", nil2), `the queue "q"`},
		{Queue("B", "", nil2), `function "B" has no queue`},
		{Timer("T", "every day", nilTimer), `the schedule "every day"`},
		{Timer("T", "0 30 2 * * 🌙", nilTimer), "the schedule"},
		{Timer("T", "00:00:00", nilTimer), "the schedule"},
		{ServiceBusQueue("S", "orders", nil2), "a serviceBusTrigger without a connection"},
		{manual("D", CosmosDBOutput[string]("docs", "db", "c")), "a cosmosDB without a connection"},
		{manual("P", Property("name", "x")), "cannot be set"},
		{manual("P", Property("f", func() {})), "that cannot be encoded as JSON"},
		{manual("T", Timeout(-1)), "a negative timeout"},
	} {
		root := hostRoot(t, bundledHost)
		if _, err := runWrite(t, App{Triggers: []Trigger{tt.trigger}}, root); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %s: %v, want an error with %s", tt.trigger.Name(), tt.trigger.function.Source.Kind, err, tt.want)
		}
	}
	for _, fine := range []Trigger{
		Timer("T", "%SCHEDULE%", nilTimer), Timer("T", "1.00:00:00", nilTimer), Timer("T", "0 */5 9-17 * * MON-FRI", nilTimer, NoMonitor),
		Queue("Q", "%QUEUE%", nil2), manual("M", QueueOutput[string](triggers.ReturnName, "things")),
	} {
		if _, err := runWrite(t, App{Triggers: []Trigger{fine}}, hostRoot(t, bundledHost)); err != nil {
			t.Errorf("%v: %v", fine.function.Source.Properties, err)
		}
	}
	if _, err := runWrite(t, App{}, t.TempDir()); err == nil || !strings.Contains(err.Error(), "there is no host.json in") {
		t.Errorf("no host.json: %v", err)
	}
}

func TestWriteFunctions_PerRouteWritesOneFunctionPerPath(t *testing.T) {
	t.Parallel()
	handle := func(c echo.Context) error { return c.NoContent(204) }
	app := App{Routes: func(api *echo.Group, _ *durableClient) {
		api.GET("/orders/:id", handle)
		api.PUT("/orders/:id", handle)
		api.POST("/orders", handle)
		api.GET("/files/*", handle)
	}}
	root := hostRoot(t, `{"version": "2.0", "extensions": {"http": {"routePrefix": "v1/api"}}}`)
	if _, err := runWrite(t, app, "-per-route", root); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, name := range []string{"http-orders", "http-orders-id", "http-files-zz", "durabletask"} {
		var file struct {
			Bindings []struct {
				Route, AuthLevel string
				Methods          []string
			}
		}
		if err := json.Unmarshal([]byte(fileText(t, root, name, triggers.FileName)), &file); err != nil {
			t.Fatal(err)
		}
		b := file.Bindings[0]
		got[name] = b.AuthLevel + " " + strings.Join(b.Methods, ",") + " " + b.Route
	}
	want := map[string]string{
		"http-orders": "function post orders", "http-orders-id": "function get,put orders/{id}", "http-files-zz": "function get files/{*path}",
		"durabletask": "function delete,get,head,post durabletask/{*path}",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("functions (-want +got):\n%s", diff)
	}
	for path, want := range map[string]string{"/admin/x": "which the host reserves", "/runtimes": "which the host reserves", "/a:b": "which the host does not support"} {
		bad := App{Routes: func(api *echo.Group, _ *durableClient) { api.GET(path, handle) }}
		if _, err := runWrite(t, bad, "-per-route", root); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %s", path, err, want)
		}
	}
	panics := App{Routes: func(*echo.Group, *durableClient) { panic("no database") }}
	if _, err := runWrite(t, panics, "-per-route", root); err == nil || !strings.Contains(err.Error(), "no database") {
		t.Errorf("routes that panic: %v", err)
	}
}
