package handler

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
	"github.com/google/go-cmp/cmp"
)

func TestPartitionLog_ReadsItsSettingsFromHostJSON(t *testing.T) {
	t.Parallel()
	const logs = `"type": "partitionlog"`
	for _, tt := range []struct {
		members string
		want    []any // partitions, lease, longest polling interval, hub
	}{
		{logs, []any{4, 30 * time.Second, time.Second, "MyHub"}},
		{logs + `, "partitionCount": 64, "partitionLeaseInterval": "00:00:20", "maxQueuePollingInterval": "00:00:05"`, []any{64, 20 * time.Second, 5 * time.Second, "MyHub"}},
		{logs + `, "maxQueuePollingInterval": "00:30:00"`, []any{4, 30 * time.Second, time.Minute, "MyHub"}},
	} {
		cfg := configured(t, durableTaskJSON(`"hubName": "MyHub", "storageProvider": {`+tt.members+`}`))
		got := cfg.partitionLogConfig().WithDefaults()
		if diff := cmp.Diff(tt.want, []any{got.PartitionCount, got.LeaseInterval, got.MaxPollingInterval, got.TaskHub}); diff != "" || cfg.Problem != nil || len(cfg.Notices) > 0 {
			t.Errorf("%s: %v, %q (-want +got):\n%s", tt.members, cfg.Problem, cfg.Notices, diff)
		}
		effective := map[string]any{}
		for _, e := range cfg.effective() {
			effective[strings.TrimPrefix(e.Name, storagePath+".")] = e.Value
		}
		if effective["type"] != "partitionLog" || effective["partitionCount"] != tt.want[0] {
			t.Errorf("%s: the effective configuration has %v", tt.members, effective)
		}
	}
}

func TestPartitionLog_SettingsOfOtherTypesGetANotice(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"path": `"a.db"`, "relaxedDurability": "true", "allowNetworkFile": "true", "controlQueueBatchSize": "8", "trackingEnabled": "true",
		"trackingStoreConnectionName": `"Missing"`, "useTablePartitionManagement": "false", "jumpStartEnabled": "true",
	} {
		cfg := configured(t, durableTaskJSON(`"storageProvider": {"type": "partitionLog", "`+name+`": `+value+`}`))
		want := []string{"The setting " + storagePath + "." + name + " has no effect (host.json line 1): storageProvider.type is partitionLog."}
		if diff := cmp.Diff(want, cfg.Notices); diff != "" || cfg.Problem != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, cfg.Problem, diff)
		}
	}
	if cfg := configured(t, durableTaskJSON(`"useAppLease": false, "storageProvider": {"type": "partitionLog"}`)); len(cfg.Notices) != 1 {
		t.Errorf("useAppLease: %q, want a notice", cfg.Notices)
	}
}

func TestPartitionLog_ErrorsHaveTheAllowedValuesOfItsSettings(t *testing.T) {
	t.Parallel()
	for member, want := range map[string]string{
		`"partitionCount": 65`:                  "is 65; want a whole number from 1 to 64",
		`"partitionLeaseInterval": "00:01:01"`:  "want a time span from 00:00:15 to 00:01:00",
		`"connectionStringName": "Missing"`:     `no storage connection named "Missing"`,
		`"connectionName": "AccountKey=c2Vjcg"`: "may be a secret and is not shown",
	} {
		cfg := configured(t, durableTaskJSON(`"storageProvider": {"type": "partitionLog", `+member+`}`))
		if cfg.Problem == nil || !strings.Contains(cfg.Problem.Error(), want) {
			t.Errorf("%s: %v, want %s", member, cfg.Problem, want)
		}
	}
}

// onLogs runs an app with a hub in partition logs of an account in memory.
func onLogs(t *testing.T, see func(a *settingsApp)) {
	t.Helper()
	onLogsWith(t, effect{}, see)
}

// onLogsWith is like onLogs, for an app with other properties.
func onLogsWith(t *testing.T, e effect, see func(a *settingsApp)) {
	t.Helper()
	e.with, e.see = []string{inLogs}, func(a *settingsApp) any { see(a); return nil }
	synctest.Test(t, func(t *testing.T) { runSettingsApp(t, e, settings.New()) })
}

// another runs another app on the hub until see returns.
func (a *settingsApp) another(change func(*Config), see func(*Server)) {
	a.Helper()
	cfg := a.cfg
	cfg.PartitionLog.WorkerID = "other"
	change(&cfg)
	s := New(a.app(), cfg)
	ctx, stop := context.WithCancel(a.Context())
	ended := make(chan error)
	go func() { ended <- s.work(ctx) }()
	see(s)
	stop()
	if err := <-ended; err != nil {
		a.Error(err)
	}
	if err := s.hub.Close(); err != nil {
		a.Error(err)
	}
}

func TestPartitionLog_EveryCallerGetsTheReasonOfAWrongPartitionCount(t *testing.T) {
	t.Parallel()
	onLogs(t, func(a *settingsApp) {
		a.start("Quick/i", "", time.Second)
		a.another(func(cfg *Config) { cfg.PartitionLog.PartitionCount = 5 }, func(s *Server) {
			w := call(s, "GET", managed+"instances", "")
			want := "has 4 partitions, but PartitionCount is 5: set PartitionCount to the hub's count, or choose another name for the hub. Correct the cause and restart the app."
			if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), want) || w.Header().Get("Retry-After") == "" {
				a.Errorf("%d %s, want 503 with %s", w.Code, w.Body, want)
			}
		})
	})
}

func TestPartitionLog_AForeignContainerIsReportedAndNotChanged(t *testing.T) {
	t.Parallel()
	onLogs(t, func(a *settingsApp) {
		put := func(path, body string) {
			r, err := http.NewRequestWithContext(a.Context(), http.MethodPut, "https://sim.blob.core.windows.net/other-log"+path, strings.NewReader(body))
			if err != nil {
				a.Fatal(err)
			}
			r.Header.Set("x-ms-blob-type", "BlockBlob")
			answer, err := a.account.Worker("somebody").Do(r)
			if err != nil || answer.StatusCode != http.StatusCreated {
				a.Fatal(answer, err)
			}
			_ = answer.Body.Close() // the answer is in memory
		}
		put("?restype=container", "")
		for body, want := range map[string]string{
			"holidays": "container other-log is not a task hub that this program knows: hub.json: invalid character",
			`{"format":2,"partitions":4,"id":"later"}`: "its format is version 2; this program knows version 1",
		} {
			put("/hub.json", body)
			before := a.number("^(PUT|POST|DELETE) [^ ]*/other-log")
			a.another(func(cfg *Config) { cfg.Storage.TaskHub = "other" }, func(s *Server) {
				w := call(s, "GET", managed+"instances", "")
				if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), want) {
					a.Errorf("%s: %d %s, want 503 with %s", body, w.Code, w.Body, want)
				}
			})
			if now := a.number("^(PUT|POST|DELETE) [^ ]*/other-log"); now != before {
				a.Errorf("%s: %d requests wrote something, want none", body, now-before)
			}
		}
	})
}

func TestPartitionLog_StartsOfTakenIDsAreRefusedByEveryProcess(t *testing.T) {
	t.Parallel()
	onLogs(t, func(a *settingsApp) {
		a.start("Wait/i", "", 10*time.Second)
		if code := a.start("Wait/i", "", 0); code != http.StatusConflict {
			a.Errorf("by the worker: %d, want 409", code)
		}
		client := readyServer(a.T, App{}, a.cfg)
		if w := call(client, "POST", managed+"orchestrators/Wait/i", ""); w.Code != http.StatusConflict {
			a.Errorf("by a client: %d %s, want 409", w.Code, w.Body)
		}
		if w := call(client, "GET", managed+"instances/i", ""); w.Code != http.StatusAccepted {
			a.Errorf("a client sees %d %s, want 202", w.Code, w.Body)
		}
		if err := client.hub.Close(); err != nil {
			a.Error(err)
		}
	})
}

func TestPartitionLog_AnOutageIsAnswered503UntilItIsOver(t *testing.T) {
	t.Parallel()
	onLogs(t, func(a *settingsApp) {
		a.start("Wait/i", "", time.Minute)
		var down atomic.Bool
		cfg := a.cfg
		cfg.Storage.Transport = recorded(func(r *http.Request) (*http.Response, error) {
			if down.Load() {
				return nil, refusedConnection
			}
			return a.cfg.Storage.Transport.Do(r)
		})
		client := readyServer(a.T, App{}, cfg)
		ask := func(want int, method, path string) {
			a.Helper()
			w := call(client, method, managed+path, "1")
			if w.Code != want || want == http.StatusServiceUnavailable && w.Header().Get("Retry-After") == "" {
				a.Errorf("%s %s: %d %s, want %d", method, path, w.Code, w.Body, want)
			}
		}
		ask(http.StatusOK, "GET", "health/ready")
		down.Store(true)
		time.Sleep(time.Minute)
		for _, r := range []string{"GET health/ready", "GET instances/i", "GET instances", "POST orchestrators/Wait/j", "POST instances/i/raiseEvent/E"} {
			method, path, _ := strings.Cut(r, " ")
			ask(http.StatusServiceUnavailable, method, path)
		}
		down.Store(false)
		time.Sleep(time.Minute)
		ask(http.StatusOK, "GET", "health/ready")
		ask(http.StatusAccepted, "POST", "instances/i/raiseEvent/E")
		if err := client.hub.Close(); err != nil {
			a.Error(err)
		}
	})
}

func TestPartitionLog_IsDeletedIfNoWorkerUsesItOrByForce(t *testing.T) {
	t.Parallel()
	onLogs(t, func(a *settingsApp) {
		a.start("Wait/i", "", time.Minute)
		client := readyServer(a.T, App{}, a.cfg)
		if w := call(client, "GET", managed+"instances/i", ""); w.Code != http.StatusAccepted {
			a.Errorf("a client sees %d %s, want 202", w.Code, w.Body)
		}
		hub, err := openDeleter(a.cfg)
		if err != nil {
			a.Fatal(err)
		}
		if err := hub.Delete(a.Context(), false); !errors.Is(err, provider.ErrHubBusy) {
			a.Errorf("deleted while a worker uses it: %v", err)
		}
		if err := hub.Delete(a.Context(), true); err != nil {
			a.Fatal(err)
		}
		time.Sleep(time.Minute)
		if w := a.ask("GET", "health/ready", ""); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "was deleted while this process used it") {
			a.Errorf("%d %s, want 503 with the reason", w.Code, w.Body)
		}
		for _, r := range []string{"GET instances/i", "GET instances", "POST orchestrators/Wait/j", "POST instances/i/raiseEvent/E", "DELETE instances/i"} {
			method, path, _ := strings.Cut(r, " ")
			if w := a.ask(method, path, "1"); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "deleted") {
				a.Errorf("%s: %d %s, want 503 with the reason", r, w.Code, w.Body)
			}
			if w := call(client, method, managed+path, "1"); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "was deleted. Restart the app") {
				a.Errorf("%s by a client: %d %s, want 503 with the reason", r, w.Code, w.Body)
			}
		}
		if err := client.hub.Close(); err != nil {
			a.Error(err)
		}
		if err := hub.Delete(a.Context(), false); !errors.Is(err, partitionlog.ErrNoHub) {
			a.Errorf("deleted twice: %v", err)
		}
	})
}

// An app starts and serves the other partitions if one is damaged, even if the app's first request is
// for the damaged one.
func TestPartitionLog_AnAppStartsWithADamagedPartition(t *testing.T) {
	t.Parallel()
	onLogsWith(t, effect{idle: true}, func(a *settingsApp) {
		a.start("Quick/i", "", 10*time.Second) // until the client has released the partition
		hash := fnv.New32a()
		_, _ = hash.Write([]byte("@@probe"))
		lost := fmt.Sprintf("p%02d/log-", hash.Sum32()%4)
		if n := a.account.Vanish("testhubname-log", func(name string) bool { return strings.HasPrefix(name, lost) }); n == 0 {
			a.Fatalf("no blob has vanished; there are %v", a.account.Blobs())
		}
		a.another(func(*Config) {}, func(s *Server) {
			time.Sleep(time.Minute)
			w := call(s, "GET", managed+"health/ready", "")
			if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"problem":"notOpened","reason":"`) || !strings.Contains(w.Body.String(), lost) {
				a.Errorf("%d %s, want 200 with the damaged partition", w.Code, w.Body)
			}
		})
	})
}

// A caller repeats a request whose process has lost the partition meanwhile, or whose response was lost.
func TestManagement_ARequestWithUnknownResultIsAnswered503(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{
		&partitionlog.UncertainError{Cause: errors.New("another process has the partition")},
		fmt.Errorf("%w: %w", azurestorage.ErrMaybeSent, errors.New("connection reset")),
	} {
		hub := newFakeHub()
		s := readyServer(t, App{}, fakeConfig(t, hub))
		hub.fail(fmt.Errorf("start instance: %w", cause))
		w := call(s, "POST", managed+"orchestrators/Hello/i", "")
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "may or may not have happened") {
			t.Errorf("%d %s, want 503 with Retry-After and the reason", w.Code, w.Body)
		}
	}
}
