//go:build unix

package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/handler/processtest"
)

// A promServer is a real Prometheus.
type promServer struct {
	*program
	url string
}

// startPrometheus starts Prometheus with a configuration. It skips the test without Prometheus, unless
// Prometheus is required.
func startPrometheus(t *testing.T, config string) promServer {
	t.Helper()
	path, err := exec.LookPath("prometheus")
	if err != nil {
		if azuritetest.Required("prometheus") {
			t.Fatal(err)
		}
		t.Skipf("this test needs Prometheus: %v", err)
	}
	dir, address := t.TempDir(), fmt.Sprintf("127.0.0.1:%d", processtest.ReservePort(t))
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p := run(t, dir, os.Environ(), path, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	return promServer{p, "http://" + address}
}

// get decodes the data of an answer of Prometheus. It reports false if Prometheus does not answer yet.
func (p promServer) get(path string, data any) bool {
	resp, err := http.Get(p.url + "/api/v1/" + path)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	answer := struct{ Data any }{data}
	return json.NewDecoder(resp.Body).Decode(&answer) == nil && resp.StatusCode == http.StatusOK
}

// query returns the value of a query with one result.
func (p promServer) query(expr string) string {
	var data struct {
		Result []struct{ Value []any }
	}
	if !p.get("query?query="+url.QueryEscape(expr), &data) || len(data.Result) != 1 || len(data.Result[0].Value) != 2 {
		return ""
	}
	return fmt.Sprint(data.Result[0].Value[1])
}

func TestPrometheus_ScrapesTheAppWithTheKeyForReading(t *testing.T) {
	t.Parallel()
	const key, readKey = "the key of this test", "a key for reading only"
	rules, err := filepath.Abs(filepath.Join(checkout, "handler", "prometheus", "alerts.yml"))
	if err != nil {
		t.Fatal(err)
	}
	a := startStandalone(t, e2eApp, newRoot(t, newHub(), "", nil), "DURABLE_KEY="+key, "DURABLE_READ_KEY="+readKey)
	job := func(name, key string) string {
		return fmt.Sprintf("  - job_name: %s\n    authorization: {credentials: %q}\n    static_configs: [{targets: [%q]}]\n", name, key, strings.TrimPrefix(a.url, "http://"))
	}
	p := startPrometheus(t, fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\nscrape_configs:\n", rules)+
		job("reader", readKey)+job("stranger", "another key"))

	got := a.call(http.MethodPost, "/api/durabletask/orchestrators/Steps?code="+url.QueryEscape(key), map[string]int{"steps": 3})
	if got.status != http.StatusAccepted {
		t.Fatalf("start: %d %s", got.status, got.body)
	}
	eventually(t, 30*time.Second, "Prometheus to have the completed activities", func() bool {
		return p.query(`durabletask_work_items_total{job="reader",durabletask_task_name="Step",durabletask_outcome="completed"}`) == "3"
	})
	eventually(t, 30*time.Second, "Prometheus to be refused without a valid key", func() bool { return p.query(`up{job="stranger"}`) == "0" })
	if up := p.query(`up{job="reader"}`); up != "1" {
		t.Errorf("up is %q, want 1", up)
	}
	if free := p.query(`durabletask_disk_free_bytes{job="reader"} > 0`); free == "" {
		t.Error("the free disk space is unknown")
	}
	var loaded struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError, State string }
		}
	}
	eventually(t, 30*time.Second, "Prometheus to evaluate the rules", func() bool {
		return p.get("rules", &loaded) && len(loaded.Groups) == 1 && loaded.Groups[0].Rules[0].Health != "unknown"
	})
	for _, r := range loaded.Groups[0].Rules {
		if r.Health != "ok" || r.State != "inactive" {
			t.Errorf("rule %s: %s %s %s, want ok and inactive", r.Name, r.Health, r.LastError, r.State)
		}
	}
}
