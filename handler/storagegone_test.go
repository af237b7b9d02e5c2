//go:build unix

package handler

import (
	"fmt"
	"io"
	"net/http"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
	"github.com/google/uuid"
	"github.com/labstack/echo/v4"
)

// fileLimit is the largest size of files in [runOnFullDisk], in bytes.
const fileLimit = 3 << 20

// runOnFullDisk is Main with an app on a full disk, until a request makes room. It limits the size of
// files with RLIMIT_FSIZE, which has the same effect as a full disk.
func runOnFullDisk() {
	signal.Ignore(syscall.SIGXFSZ) // the write fails instead
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		panic(err)
	}
	all := limit
	limit.Cur = fileLimit
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		panic(err)
	}
	Main(App{
		Registrations: []*durable.Registration{durable.Orchestrator("Good", idle)},
		Routes: func(api *echo.Group, _ *durable.Client) {
			api.POST("/room", func(c echo.Context) error {
				if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &all); err != nil {
					return err
				}
				return c.NoContent(http.StatusOK)
			})
		},
	})
}

// send sends a request to the app and returns the status and body of the answer.
func (m *machine) send(method, path, body string) (int, string) {
	m.Helper()
	r, err := http.NewRequestWithContext(m.Context(), method, m.base+path, strings.NewReader(body))
	if err != nil {
		m.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		m.Fatal(err)
	}
	defer answer.Body.Close()
	told, err := io.ReadAll(answer.Body)
	if err != nil {
		m.Fatal(err)
	}
	return answer.StatusCode, string(told)
}

// isReady waits until the app's readiness is as wanted, and returns the answer.
func (m *machine) isReady(want bool) (body string) {
	m.Helper()
	patience.Until(m.T, fmt.Sprintf("it is ready: %v", want), func() bool {
		var status int
		status, body = m.send("GET", management.ReadyPath, "")
		return (status == http.StatusOK) == want
	})
	return body
}

// If the disk has no room for large inputs, the app is not ready, although small inputs still fit. It
// becomes ready when there is room again.
func TestReady_ReportsAFullDisk(t *testing.T) {
	t.Parallel()
	m := newMachine(t, inAFile)
	m.role = "full disk"
	m.start()
	m.isReady(true)
	large := `"` + strings.Repeat("x", 400_000) + `"`
	start := func(body string) (int, string) { return m.send("POST", managed+"orchestrators/Good", body) }
	status, told := start(large)
	for n := 0; status == http.StatusAccepted; n++ {
		if n > 100 {
			t.Fatal("there is room for everything")
		}
		status, told = start(large)
	}
	const why = "The disk of the task hub's file is full"
	if status != http.StatusServiceUnavailable || !strings.Contains(told, why) {
		t.Errorf("a start that does not fit: %d %s, want 503 and why", status, told)
	}
	if status, told := start("1"); status != http.StatusAccepted {
		t.Errorf("a start that fits: %d %s", status, told)
	}
	if told := m.isReady(false); !strings.Contains(told, "file too large") {
		t.Errorf("not ready: %s, want the reason", told)
	}
	if status, told := m.send("POST", "/api/room", ""); status != http.StatusOK {
		t.Fatalf("make room: %d %s", status, told)
	}
	m.isReady(true)
	if status, told := start(large); status != http.StatusAccepted {
		t.Errorf("with room again: %d %s", status, told)
	}
}

// If the hub is deleted while the app runs, the app is not ready and all requests report it. Azure
// Storage allows the hub to be created again only after half a minute.
func TestReady_ReportsADeletedHubUntilItIsCreatedAgain(t *testing.T) {
	t.Parallel()
	account := azuritetest.Start(t)
	proxy := azuritetest.NewProxy()
	t.Cleanup(proxy.Stop)
	through, err := proxy.Storage(account)
	if err != nil {
		t.Fatal(err)
	}
	name := "Gone" + uuid.NewString()[:8]
	m := newMachine(t, `"hubName": "`+name+`", "storageProvider": {"type": "AzureStorage", "maxQueuePollingInterval": "00:00:01"}`, "AzureWebJobsStorage="+through)
	m.start()
	m.isReady(true)
	m.post("orchestrators/Good/before", false)
	m.becomes("before", "Completed")

	proxy.SetPlan(func(call azuritetest.Call) azuritetest.Handling {
		if strings.HasPrefix(call.Name, "Create") {
			return azuritetest.Handling{Fault: azuritetest.Drop}
		}
		return azuritetest.Handling{}
	})
	connection, err := azurestorage.ParseConnectionString(account)
	if err != nil {
		t.Fatal(err)
	}
	hub, err := azurestorage.Open(connection, azurestorage.Config{TaskHub: name})
	if err != nil {
		t.Fatal(err)
	}
	if err := hub.Delete(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	const why = "create task hub"
	if told := m.isReady(false); !strings.Contains(told, why) {
		t.Errorf("not ready: %s, want the reason", told)
	}
	for _, r := range [][3]string{
		{"POST", "orchestrators/Good", "1"},
		{"GET", "instances/before", ""},
		{"GET", "instances", ""},
		{"POST", "instances/before/raiseEvent/e", "1"},
		{"DELETE", "instances/before", ""},
	} {
		if status, told := m.send(r[0], managed+r[1], r[2]); status != http.StatusServiceUnavailable || !strings.Contains(told, why) {
			t.Errorf("%s %s: %d %s, want 503 and why", r[0], r[1], status, told)
		}
	}

	proxy.SetPlan(nil)
	m.isReady(true)
	m.post("orchestrators/Good/after", false)
	m.becomes("after", "Completed")
}
