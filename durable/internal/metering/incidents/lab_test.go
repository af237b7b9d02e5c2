package incidents

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	_ "github.com/durablefunctions-go/durablefunctions/durable/durabletest/oneprocessor"
	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/chance"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/prometheus"
	"go.yaml.in/yaml/v3"
)

// alertsFile has the rules that the tests check.
const alertsFile = "../../../../handler/prometheus/alerts.yml"

// scrapeEvery is the interval of scrapes in the simulated time.
const scrapeEvery = 30 * time.Second

// A lab runs workers in a bubble and scrapes their metrics as Prometheus does.
type lab struct {
	*testing.T
	account *azsim.Account
	faults  atomic.Pointer[func(azsim.Request) azsim.Fault] // nil means none
	dir     string                                          // of the hub in a local file
	logger  *slog.Logger
	log     *logLines
	logJSON *logLines // the same records as JSON

	workers map[string]*worker
	samples map[string][]string // values by series; "_" before its first scrape, "stale" if a later scrape lacks the series
	scrapes int
}

// logLines holds the lines of a log.
type logLines struct {
	mu  sync.Mutex // guards all
	all []string
}

// Write adds a line.
func (l *logLines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(line))
	return len(line), nil
}

// lines returns the lines so far.
func (l *logLines) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

// A worker is a running worker with its page of metrics.
type worker struct {
	page    *prometheus.Page
	provide provider.Provider
	stop    context.CancelFunc
	ended   chan error
}

// inLab runs f in a bubble and returns the samples of its scrapes.
func inLab(t *testing.T, f func(l *lab)) (l *lab) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		text, asJSON := &logLines{}, &logLines{}
		logger := slog.New(slog.NewMultiHandler(slog.NewTextHandler(text, nil), slog.NewJSONHandler(asJSON, nil)))
		l = &lab{T: t, dir: dir, log: text, logJSON: asJSON, logger: logger, workers: map[string]*worker{}, samples: map[string][]string{}}
		l.account = azsim.New(azsim.Config{Seed: 7, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond, Decide: func(r azsim.Request) azsim.Fault {
			if decide := l.faults.Load(); decide != nil {
				return (*decide)(r)
			}
			return azsim.None
		}})
		defer l.account.End()
		defer func() {
			for _, name := range slices.Sorted(maps.Keys(l.workers)) {
				l.leave(name)
			}
		}()
		f(l)
	})
	return l
}

// fail makes decide choose the faults of requests, until a call with nil.
func (l *lab) fail(decide func(azsim.Request) azsim.Fault) {
	if decide == nil {
		l.faults.Store(nil)
		return
	}
	l.faults.Store(&decide)
}

// A store opens the hub of a worker.
type store func(l *lab, name string, page *prometheus.Page) (provider.Provider, error)

// stores are the stores of task hubs, by name.
var stores = map[string]store{"azurestorage": inQueues, "partitionlog": inLogs, "embedded": inFile}

// inQueues opens a hub in queues and tables.
func inQueues(l *lab, name string, page *prometheus.Page) (provider.Provider, error) {
	c, err := azurestorage.ParseConnectionString(l.account.ConnectionString())
	if err != nil {
		return nil, err
	}
	return azurestorage.Open(c, azurestorage.Config{
		TaskHub: "Lab", PartitionCount: 2, WorkerID: name, MaxConcurrentActivities: 10, AppLease: azurestorage.AppLease{Disabled: true},
		Transport: l.account.Worker(name), MeterProvider: page, Logger: l.logger,
	})
}

// inLogs opens a hub in partition logs.
func inLogs(l *lab, name string, page *prometheus.Page) (provider.Provider, error) {
	c, err := azurestorage.ParseConnectionString(l.account.ConnectionString())
	if err != nil {
		return nil, err
	}
	return partitionlog.Open(c, partitionlog.Config{
		TaskHub: "Lab", WorkerID: name, Transport: l.account.Worker(name), MeterProvider: page, Logger: l.logger,
	})
}

// inFile opens a hub in a local file.
func inFile(l *lab, _ string, page *prometheus.Page) (provider.Provider, error) {
	return embedded.Open(filepath.Join(l.dir, "hub.db"), embedded.Config{Relaxed: true, MeterProvider: page, Logger: l.logger})
}

// join starts a worker and returns a client of its hub.
func (l *lab) join(name string, in store, functions []*durable.Registration, cfg durable.Config) *durable.Client {
	l.Helper()
	w := &worker{page: prometheus.New(), ended: make(chan error, 1)}
	var err error
	if w.provide, err = in(l, name, w.page); err != nil {
		l.Fatal(err)
	}
	ctx, stop := context.WithCancel(chance.With(l.Context(), l.account.Chance(name)))
	w.stop = stop
	registry := durable.NewRegistry(functions...)
	cfg.Metrics.Provider, cfg.Logger = w.page, l.logger
	go func() { w.ended <- durable.NewWorker(w.provide, registry, cfg).Run(ctx) }()
	l.workers[name] = w
	return durable.NewClient(w.provide, registry)
}

// leave stops a worker.
func (l *lab) leave(name string) {
	l.Helper()
	w := l.workers[name]
	delete(l.workers, name)
	w.stop()
	if err := <-w.ended; err != nil {
		l.Errorf("worker %s: %v", name, err)
	}
	if c, ok := w.provide.(interface{ Close() error }); ok {
		if err := c.Close(); err != nil {
			l.Error(err)
		}
	}
}

// pass lets time pass and scrapes the workers meanwhile.
func (l *lab) pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(scrapeEvery) // real time: none, because inLab calls this in a bubble
		for name, w := range l.workers {
			page := httptest.NewRecorder()
			w.page.ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			l.scrape(name, page.Body.String())
		}
		l.scrapes++
		for series, values := range l.samples {
			if len(values) < l.scrapes {
				l.samples[series] = append(values, "stale") // as Prometheus marks it
			}
		}
	}
}

// scrape records the samples in the page of a worker. It skips metrics that no rule uses.
func (l *lab) scrape(name, page string) {
	for line := range strings.SplitSeq(page, "\n") {
		at := strings.LastIndexByte(line, ' ')
		if !strings.HasPrefix(line, "durabletask_") || strings.Contains(line, "_bucket{") {
			continue
		}
		series, labels, _ := strings.Cut(strings.TrimSuffix(line[:at], "}"), "{")
		value, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			l.Fatalf("%s: %v", line, err)
		}
		series = fmt.Sprintf(`%s{%s}`, series, strings.Trim(labels+`,job="lab",instance="`+name+`"`, ","))
		values := l.samples[series]
		for len(values) < l.scrapes {
			values = append(values, "_")
		}
		l.samples[series] = append(values, strconv.FormatFloat(value, 'f', -1, 64))
	}
}

// await waits for the end of an instance, while the workers are scraped.
func (l *lab) await(client *durable.Client, id durable.InstanceID, want history.RuntimeStatus) {
	l.Helper()
	for range 20 {
		state, err := client.Status(l.Context(), id, durable.Fetch{})
		if err == nil && state.Status == want {
			return
		}
		l.pass(scrapeEvery)
	}
	l.Fatalf("instance %s is not %v after 10 minutes", id, want)
}

// A check is a value of an expression at a time after the start of the scrapes.
type check struct {
	expr string
	at   time.Duration
	want map[string]float64 // values by labels; empty means no result
}

// promtool evaluates the alert rules over the samples, in Prometheus's own engine.
func (l *lab) promtool(t *testing.T, checks ...check) {
	t.Helper()
	rules, err := filepath.Abs(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	if len(l.samples) == 0 {
		t.Fatal("no samples")
	}
	var input, exprs []any
	for _, series := range slices.Sorted(maps.Keys(l.samples)) {
		input = append(input, map[string]any{"series": series, "values": strings.Join(l.samples[series], " ")})
	}
	for _, c := range checks {
		var want []any
		for _, labels := range slices.Sorted(maps.Keys(c.want)) {
			want = append(want, map[string]any{"labels": labels, "value": c.want[labels]})
		}
		exprs = append(exprs, map[string]any{"expr": c.expr, "eval_time": c.at.String(), "exp_samples": want})
	}
	text, err := yaml.Marshal(map[string]any{
		"rule_files": []string{rules}, "evaluation_interval": scrapeEvery.String(),
		"tests": []any{map[string]any{"interval": scrapeEvery.String(), "input_series": input, "promql_expr_test": exprs}},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "test.yml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "promtool", "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, bytes.TrimSpace(out))
	}
}

// end returns the time of the last scrape.
func (l *lab) end() time.Duration { return time.Duration(l.scrapes-1) * scrapeEvery }

// needsPromtool skips a test without promtool, unless promtool is required.
func needsPromtool(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("promtool"); err != nil {
		if azuritetest.Required("prometheus") {
			t.Fatal(err)
		}
		t.Skipf("this test needs promtool of Prometheus: %v", err)
	}
}

// A rule is an alert in the file.
type rule struct{ Alert, Expr string }

// alertRules returns all alerts in the file.
func alertRules(t *testing.T) (all []rule) {
	t.Helper()
	text, err := os.ReadFile(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct{ Rules []rule }
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}
