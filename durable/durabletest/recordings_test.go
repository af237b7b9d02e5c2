package durabletest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler"
)

var rewrite = flag.Bool("rewrite", false, "record testdata/recorded again, with Azurite and func")

// journey uses most features of orchestrators. Its histories are in testdata/recorded.
func journey(ctx *durable.Context, t trip) (string, error) {
	deadline := ctx.Timer(240 * time.Hour) // split into several shorter timers
	quotes := make([]*durable.Task[string], len(t.Cities))
	for i, city := range t.Cities {
		quotes[i] = durable.CallActivity(ctx, quote, city)
	}
	weather := durable.CallActivity(ctx, forecast, t.Cities[0])
	offers, err := durable.AwaitAll(ctx, quotes...)
	if err != nil {
		return "", err
	}
	outlook, err := weather.Await()
	if err != nil {
		return "", err
	}
	ticket, err := durable.CallActivity(ctx, book, offers[0], durable.RetryPolicy{MaxAttempts: 3, FirstInterval: 100 * time.Millisecond}).Await()
	if err != nil {
		return "", err
	}
	bag, err := durable.CallSubOrchestrator(ctx, pack, t.Cities[0], durable.InstanceID(string(ctx.InstanceID())+"-bag")).Await()
	if err != nil {
		return "", err
	}
	departure := leave.Wait(ctx)
	if durable.AwaitAny(ctx, departure, deadline) == deadline {
		return "stayed", nil
	}
	gate, err := departure.Await()
	return fmt.Sprintf("%s %s %s %s gate %d", outlook, offers, ticket, bag, gate), err
}

type trip struct {
	Cities []string `json:"cities"`
}

const leave = durable.Event[int]("Leave")

func quote(_ context.Context, city string) (string, error)    { return "€ for " + city, nil }
func forecast(_ context.Context, city string) (string, error) { return "sun in " + city, nil }

// book fails in its first calls.
func book(ctx context.Context, offer string) (string, error) {
	if info, ok := durable.ActivityInfoFrom(ctx); ok && info.TaskID < 6 {
		return "", errors.New("sold out")
	}
	return "ticket, " + offer, nil
}

func pack(ctx *durable.Context, city string) (string, error) {
	ctx.Sleep(10 * time.Millisecond)
	return "bag for " + city, nil
}

func journeys() []*durable.Registration {
	return []*durable.Registration{
		durable.Orchestrator("Journey", journey),
		durable.Orchestrator("Pack", pack),
		durable.Activity("Quote", quote),
		durable.Activity("Forecast", forecast),
		durable.Activity("Book", book),
	}
}

// recordedHub is the name of the task hub with the recorded instances.
const recordedHub = "Recordings"

// TestRecord, with the flag -rewrite, runs the functions above on Azurite. It writes the history of a
// running and of an ended instance in each format.
func TestRecord(t *testing.T) {
	if !*rewrite {
		return // the tests of Replay read the recordings
	}
	connection := azuritetest.Start(t)
	hub := openRecorded(t, connection)
	server, stop := serve(t, journeys(), hub)
	defer stop()
	c := durable.NewClient(hub, durable.NewRegistry(journeys()...))
	ctx, in := t.Context(), trip{[]string{"Tokyo", "Oslo", "Rome"}}
	for _, id := range []durable.InstanceID{"under-way", "ended"} {
		if _, err := durable.Start(ctx, c, journey, in, id); err != nil {
			t.Fatal(err)
		}
		patience.Until(t, fmt.Sprintf("the child of %s has completed", id), func() bool {
			events, err := c.History(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			return slices.ContainsFunc(events, func(e history.Event) bool { return e.Type() == history.TypeSubOrchestrationInstanceCompleted })
		})
	}
	if err := leave.Raise(ctx, c, "ended", 7); err != nil {
		t.Fatal(err)
	}
	if _, err := durable.InstanceOf[string](c, "ended").Wait(ctx); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"under-way", "ended"} {
		write(t, id+".api.json", get(t, server, "/durabletask/instances/"+id+"?showHistory=true&showHistoryOutput=true"))
		write(t, id+".rows.json", rowsOf(t, connection, nil, id))
		text, err := getHistory(t, connection, id)
		if err != nil {
			t.Fatal(err)
		}
		write(t, id+".func.json", text)
	}
}

// TestRecordShapes, with the flag -rewrite, writes func's output for each shape.
func TestRecordShapes(t *testing.T) {
	if !*rewrite {
		return
	}
	connection := azuritetest.Start(t)
	_, shapes, _, stop := runShapes(t, openRecorded(t, connection))
	defer stop()
	for name := range shapes {
		text, err := getHistory(t, connection, name)
		if err != nil { // func rejects events that it does not know
			t.Logf("%s is not recorded: %v", name, err)
			continue
		}
		write(t, "shapes/"+name+".func.json", text)
	}
}

func openRecorded(t *testing.T, connection string) *azurestorage.TaskHub {
	t.Helper()
	parsed, err := azurestorage.ParseConnectionString(connection)
	if err != nil {
		t.Fatal(err)
	}
	hub, err := azurestorage.Open(parsed, azurestorage.Config{
		TaskHub: recordedHub, MaxQueuePollingInterval: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return hub
}

// serve runs the functions on a hub until stop is called. The test must call stop, which waits for
// the server's end.
func serve(t *testing.T, functions []*durable.Registration, hub provider.Provider) (server *handler.Server, stop func()) {
	server = handler.New(handler.App{Registrations: functions}, handler.Config{Address: "127.0.0.1:0", Provider: hub, Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- server.Run(ctx) }()
	return server, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func get(t *testing.T, server http.Handler, url string) []byte {
	t.Helper()
	w := httptest.NewRecorder()
	server.ServeHTTP(w, httptest.NewRequest(http.MethodGet, url, nil))
	if w.Code != http.StatusOK && w.Code != http.StatusAccepted {
		t.Fatalf("%s: %d %s", url, w.Code, w.Body)
	}
	return w.Body.Bytes()
}

// rowsOf returns the history rows of an instance in the table service's format. It sends the requests
// through transport unless it is nil.
func rowsOf(t *testing.T, connection string, transport policy.Transporter, id string) []byte {
	t.Helper()
	options := &aztables.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: transport}}
	service, err := aztables.NewServiceClientFromConnectionString(connection, options)
	if err != nil {
		t.Fatal(err)
	}
	var rows []json.RawMessage
	filter := fmt.Sprintf("PartitionKey eq '%s'", id)
	for pager := service.NewClient(recordedHub + "History").NewListEntitiesPager(&aztables.ListEntitiesOptions{Filter: &filter}); pager.More(); {
		page, err := pager.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range page.Entities {
			rows = append(rows, row)
		}
	}
	all, err := json.Marshal(rows)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// getHistory returns the output of `func durable get-history`.
func getHistory(t *testing.T, connection, id string) ([]byte, error) {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"host.json":           `{"version": "2.0"}`,
		"local.settings.json": fmt.Sprintf(`{"IsEncrypted": false, "Values": {"FUNCTIONS_WORKER_RUNTIME": "custom", "AzureWebJobsStorage": %q}}`, connection),
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "func", "durable", "get-history", "--id", id, "--task-hub-name", recordedHub,
		"--connection-string-setting", "AzureWebJobsStorage")
	cmd.Dir = root
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("func durable get-history: %w\n%s%s", err, &out, &problem)
	}
	return out.Bytes(), nil
}

func write(t *testing.T, name string, text []byte) {
	t.Helper()
	if err := os.MkdirAll("testdata/recorded/shapes", 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join("testdata/recorded", name), text, 0o600); err != nil {
		t.Fatal(err)
	}
}
