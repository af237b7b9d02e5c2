//go:build unix

package e2e_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/handler/processtest"
)

// collector is the OpenTelemetry Collector in testdata. The go command keeps its packages in the build cache; the first
// build takes minutes and needs the module proxy. It has the flags of scripts/build, to share compiled packages with the app.
var collector = sync.OnceValues(func() (string, error) {
	path := filepath.Join(binaries, "collector")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s", "-o", path, ".")
	cmd.Dir = filepath.Join("testdata", "collector")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the collector: %w\n%s", err, out)
	}
	return path, nil
})

// startCollector starts a collector that forwards each signal to a receiver, and returns the endpoint of the collector.
// It skips the test if the collector cannot be built, unless the collector is required.
func startCollector(t *testing.T, receiver string) string {
	t.Helper()
	program, err := collector()
	if err != nil && !azuritetest.Required("collector") {
		t.Skipf("this test needs the modules of the OpenTelemetry Collector: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	dir, address := t.TempDir(), net.JoinHostPort("127.0.0.1", fmt.Sprint(processtest.ReservePort(t)))
	file := filepath.Join(dir, "collector.yaml")
	pipeline := "{receivers: [otlp], exporters: [otlp_http]}"
	config := fmt.Sprintf(`receivers: {otlp: {protocols: {http: {endpoint: %q}}}}
exporters: {otlp_http: {endpoint: %q, compression: none}}
service:
  pipelines: {traces: %s, metrics: %[3]s, logs: %[3]s}
`, address, receiver, pipeline)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p := run(t, dir, os.Environ(), program, "--config", file)
	p.awaitLog("Everything is ready", 0)
	return "http://" + address
}
