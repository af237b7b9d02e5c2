package handler

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/handler/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
)

// metricsOf requests /metrics and returns the status and the page.
func metricsOf(s *Server, headers ...string) (int, string) {
	w := call(s, http.MethodGet, "/metrics", "", headers...)
	return w.Code, w.Body.String()
}

func TestMetrics_AReaderGetsThemWithItsKeyAsBearerToken(t *testing.T) {
	t.Parallel()
	const readKey = "a-key-for-readers-only"
	cfg := fakeConfig(t, newFakeHub())
	cfg.Address, cfg.Key, cfg.ReadKey = "0.0.0.0:8080", theKey, readKey
	s := readyServer(t, App{Metrics: prometheus.New()}, cfg)
	for _, tt := range []struct {
		name, value string
		want        int
	}{
		{"Authorization", "Bearer " + readKey, http.StatusOK},
		{"Authorization", "bearer  " + readKey, http.StatusOK},
		{"Authorization", "Bearer " + theKey, http.StatusOK},
		{"X-Functions-Key", readKey, http.StatusOK},
		{"Authorization", "Bearer " + readKey + "x", http.StatusUnauthorized},
		{"Authorization", "Bearer", http.StatusUnauthorized},
		{"Authorization", "Bearer ", http.StatusUnauthorized},
		{"Authorization", "Basic " + readKey, http.StatusUnauthorized},
		{"Authorization", readKey, http.StatusUnauthorized},
		{"Accept", "text/plain", http.StatusUnauthorized},
	} {
		w := call(s, http.MethodGet, "/metrics", "", tt.name, tt.value)
		if w.Code != tt.want {
			t.Errorf("%s: %s: %d, want %d", tt.name, tt.value, w.Code, tt.want)
		}
		if has := strings.Contains(w.Body.String(), "go_goroutines"); has != (tt.want == http.StatusOK) {
			t.Errorf("%s: %s: the answer has metrics: %v", tt.name, tt.value, has)
		}
		if asks := w.Header().Get("WWW-Authenticate") == "Bearer"; asks != (tt.want == http.StatusUnauthorized) {
			t.Errorf("%s: %s: WWW-Authenticate is %q", tt.name, tt.value, w.Header().Get("WWW-Authenticate"))
		}
	}
	if w := call(s, http.MethodGet, "/api/durabletask/scale", "", "Authorization", "Bearer "+theKey); w.Code != http.StatusUnauthorized {
		t.Errorf("a bearer token opens the management API: %d", w.Code)
	}
}

func TestMetrics_WithoutAReadKeyAnEmptyTokenReadsNothing(t *testing.T) {
	t.Parallel()
	cfg := fakeConfig(t, newFakeHub())
	cfg.Address, cfg.Key = "0.0.0.0:8080", theKey
	s := readyServer(t, App{Metrics: prometheus.New()}, cfg)
	if status, _ := metricsOf(s, "Authorization", "Bearer "); status != http.StatusUnauthorized {
		t.Errorf("status %d, want 401", status)
	}
}

// An operator needs the metrics most while the app cannot serve.
func TestMetrics_AreServedInEveryStateOfAStandaloneApp(t *testing.T) {
	t.Parallel()
	cfg := fakeConfig(t, newFakeHub())
	s := New(App{Metrics: prometheus.New()}, cfg)
	s.state.SetUnavailable("The storage cannot be used.")
	if status, page := metricsOf(s); status != http.StatusOK || !strings.Contains(page, "go_goroutines") {
		t.Errorf("status %d: %.200s", status, page)
	}
	if w := call(s, http.MethodGet, "/api/durabletask/scale", ""); w.Code != http.StatusServiceUnavailable {
		t.Errorf("the app serves: %d", w.Code)
	}
	if status, _ := metricsOf(readyServer(t, App{}, fakeConfig(t, newFakeHub()))); status != http.StatusNotFound {
		t.Errorf("without a page: status %d, want 404", status)
	}
}

func TestMetrics_BehindTheHostAreNotServed(t *testing.T) {
	t.Parallel()
	cfg := fakeConfig(t, newFakeHub())
	cfg.BehindHost = true
	s := readyServer(t, App{Metrics: prometheus.New()}, cfg)
	if status, _ := metricsOf(s); status != http.StatusNotFound {
		t.Errorf("status %d, want 404", status)
	}
	if s.cfg.Worker.Metrics.Provider != nil || s.cfg.Storage.MeterProvider != nil {
		t.Error("the worker records metrics that are not served")
	}
	if len(s.cfg.Notices) != 1 || !strings.Contains(s.cfg.Notices[0], "/metrics") {
		t.Errorf("notices: %q", s.cfg.Notices)
	}
}

func TestMetrics_WithoutAKeyAreServedOnlyToTheOwnMachine(t *testing.T) {
	t.Parallel()
	cfg := fakeConfig(t, newFakeHub())
	cfg.Address = "0.0.0.0:8080"
	s := New(App{Metrics: prometheus.New()}, cfg)
	if status, page := metricsOf(s); status != http.StatusServiceUnavailable || strings.Contains(page, "go_goroutines") {
		t.Errorf("status %d: %.200s", status, page)
	}
	if problem := s.cfg.Problem; problem == nil || !strings.Contains(problem.Error(), "set DURABLE_KEY") || !strings.Contains(problem.Error(), "/metrics") {
		t.Errorf("the problem is %v", problem)
	}
	cfg.Address = "127.0.0.1:8080"
	if status, page := metricsOf(New(App{Metrics: prometheus.New()}, cfg)); status != http.StatusOK || !strings.Contains(page, "go_goroutines") {
		t.Errorf("on the own machine: status %d: %.200s", status, page)
	}
}

func TestMetrics_OfAnAppThatAlsoExportsThemAreOnThePageOnly(t *testing.T) {
	t.Parallel()
	cfg, page := fakeConfig(t, newFakeHub()), prometheus.New()
	cfg.Worker.Metrics.Provider = metric.NewMeterProvider()
	s := New(App{Metrics: page}, cfg)
	if s.cfg.Worker.Metrics.Provider != page {
		t.Error("the page does not receive the metrics")
	}
	if len(s.cfg.Notices) != 1 || !strings.Contains(s.cfg.Notices[0], "OTEL_METRICS_EXPORTER=none") {
		t.Errorf("notices: %q", s.cfg.Notices)
	}
	cfg.Worker.Metrics.Provider = nil
	if s := New(App{Metrics: page}, cfg); len(s.cfg.Notices) > 0 {
		t.Errorf("notices of an app that does not export its metrics: %q", s.cfg.Notices)
	}
}

func TestMetrics_OfAHubInAFileAreOnThePage(t *testing.T) {
	t.Parallel()
	cfg := fakeConfig(t, nil)
	cfg.Provider, cfg.StorageType, cfg.Embedded.Path = nil, Embedded, filepath.Join(t.TempDir(), "shop.db")
	s := readyServer(t, App{Metrics: prometheus.New()}, cfg)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.work(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	page := ""
	patience.Until(t, "the worker reports the hub", func() bool {
		_, page = metricsOf(s)
		return strings.Contains(page, "\ndurabletask_disk_free_bytes ")
	})
	if want := "\n" + `durabletask_queue_length{durabletask_queue="shop.db"} 0`; !strings.Contains(page, want) {
		t.Errorf("the page lacks %q:\n%s", want, page)
	}
}
