package handler

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
)

func eventGridSettingCases() []settingCase {
	const grid = "notifications.eventGrid."
	statuses := func(c Config) any { return strings.Join(c.EventGrid.Statuses, " ") }
	return []settingCase{
		{
			path: grid + "topicEndpoint", get: func(c Config) any { return c.EventGrid.Endpoint }, byDefault: "",
			good: map[string]any{`""`: "", `null`: ""},
			bad: map[string]string{
				`7`: "is 7; want a string", `"https://x"`: "is set, but extensions.durableTask.notifications.eventGrid.keySettingName is not",
				`"topic"`: `is "topic"; want a URL such as`,
			},
		},
		{
			path: grid + "keySettingName", get: func(c Config) any { return c.EventGrid.KeySetting }, byDefault: "",
			good: map[string]any{`"TOPIC_KEY"`: "TOPIC_KEY"}, bad: map[string]string{`[]`: "is an array; want a string"}, overridden: "Other", override: "Other",
		},
		{
			path: grid + "publishRetryCount", get: func(c Config) any { return c.EventGrid.RetryCount }, byDefault: 0,
			good: map[string]any{`3`: 3}, bad: map[string]string{`-1`: "want a whole number from 0 to 1000"}, overridden: "4", override: 4,
		},
		{
			path: grid + "publishRetryInterval", get: func(c Config) any { return c.EventGrid.RetryInterval }, byDefault: time.Duration(0),
			good: map[string]any{`"00:00:30"`: 30 * time.Second}, bad: map[string]string{`"00:00:00"`: "want a time span from 00:00:00.001 to 01:00:00"},
			overridden: "00:01:00", override: time.Minute,
		},
		{
			path: grid + "publishRetryHttpStatus", get: func(c Config) any { return len(c.EventGrid.RetryStatuses) }, byDefault: 0,
			good: map[string]any{`[400, "403"]`: 2, `[]`: 0},
			bad:  map[string]string{`400`: "is 400; want a list of HTTP statuses", `[99]`: "contains 99; want a list of HTTP statuses", `[{}]`: "contains an object; want"},
		},
		{
			path: grid + "publishEventTypes", get: statuses, byDefault: "",
			good: map[string]any{`["Started", "failed"]`: "Running Failed"},
			bad:  map[string]string{`"Started"`: `is "Started"; want a list of Started,`, `["Begun"]`: `contains "Begun"; want a list of Started, Completed, Failed, Terminated`},
		},
	}
}

func TestEventGrid_VariablesCanSetLists(t *testing.T) {
	t.Parallel()
	const types = "AzureFunctionsJobHost__extensions__durableTask__notifications__eventGrid__publishEventTypes__"
	cfg := configured(t, "{}", types+"0=Completed", types+"1=Failed")
	if cfg.Problem != nil || !slices.Equal(cfg.EventGrid.Statuses, []string{"Completed", "Failed"}) {
		t.Errorf("%v, %v", cfg.EventGrid.Statuses, cfg.Problem)
	}
}

func TestEventGrid_KeyComesFromTheSettingAndIsNotShown(t *testing.T) {
	t.Parallel()
	const hostJSON = `"notifications": {"eventGrid": {"topicEndpoint": "%TOPIC%", "keySettingName": "TOPIC_KEY"}}`
	cfg := configured(t, durableTaskJSON(hostJSON), "TOPIC=https://topic.example/api/events", "TOPIC_KEY=hush hush")
	if cfg.Problem != nil || cfg.EventGrid.Key != "hush hush" || cfg.EventGrid.Endpoint != "https://topic.example/api/events" {
		t.Errorf("%+v, %v", cfg.EventGrid, cfg.Problem)
	}
	for _, e := range cfg.effective() {
		if text, _ := e.Value.(string); strings.Contains(text, "hush") {
			t.Errorf("%s shows the key", e.Name)
		}
	}
	cfg = configured(t, durableTaskJSON(hostJSON), "TOPIC=https://topic.example/api/events")
	if cfg.Problem == nil || !strings.Contains(cfg.Problem.Error(), `keySettingName names the setting TOPIC_KEY, which is not set`) {
		t.Errorf("without the key the problem is %v", cfg.Problem)
	}
}

// A topic that does not answer delays nothing. When the app stops, it sends the last events or discards
// them.
func TestEventGrid_ReceivesStatusChangesOfAnApp(t *testing.T) {
	t.Parallel()
	got := make(chan string, 100)
	topic := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got <- r.Header.Get("aeg-sas-key") + " " + regexp.MustCompile(`"id":"[^"]*"|"eventTime":"[^"]*"`).ReplaceAllString(string(body), "…")
	}))
	t.Cleanup(topic.Close)
	a := startAppOnFile(t, Config{EventGrid: EventGridConfig{Endpoint: topic.URL, Key: "key"}})
	a.await(t, http.MethodPost, "/durabletask/orchestrators/Quick/q1", http.StatusAccepted)
	for _, status := range []string{"Running", "Completed"} {
		want := `key [{…,"topic":null,"subject":"durable/orchestrator/` + status + `","data":{"hubName":"TestHubName","functionName":"Quick",` +
			`"instanceId":"q1","reason":"","runtimeStatus":"` + status + `"},"eventType":"orchestratorEvent",…,"metadataVersion":null,"dataVersion":"1.0"}]`
		select {
		case line := <-got:
			if line != want {
				t.Errorf("the topic got\n%s\nwant\n%s", line, want)
			}
		case <-patience.Context(t).Done():
			t.Fatalf("the topic did not receive %s", status)
		}
	}
}

func TestEventGrid_ATopicThatDoesNotAnswerDelaysNothing(t *testing.T) {
	t.Parallel()
	silent := make(chan struct{})
	topic := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-silent:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() { close(silent); topic.Close() })
	a := startAppOnFile(t, Config{EventGrid: EventGridConfig{Endpoint: topic.URL, Key: "key"}})
	for range 3 {
		a.completes(t)
	}
	if err := a.stop(); err != nil {
		t.Errorf("stopping: %v", err)
	}
	if a.log.count("some events were not published to Event Grid") != 1 {
		t.Error("the log has no record of the discarded events")
	}
}

// startAppOnFile runs an app with cfg and a new hub in a file.
func startAppOnFile(t *testing.T, cfg Config) *fileApp {
	t.Helper()
	log := &logBuffer{}
	cfg.Address, cfg.StorageType, cfg.Embedded.Path = "127.0.0.1:0", Embedded, t.TempDir()+"/hub.db"
	cfg.Logger = NewLogger(log, slog.LevelInfo)
	return runFileApp(t, New(App{Registrations: []*durable.Registration{durable.Orchestrator("Quick", quick)}}, cfg), log)
}
