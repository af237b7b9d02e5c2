//go:build unix

package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
)

func TestOutage_AWrongHostJSONIsAnsweredWith503AndTheReason(t *testing.T) {
	t.Parallel()
	root := newRoot(t, newHub(), azuritetest.Start(t), func(durableTask map[string]any) {
		durableTask["storageProvider"].(map[string]any)["partitionCount"] = 17
	})
	a := launchStandalone(t, sampleApp, root)

	wantRefusal(t, a, "partitionCount", "17", "1 to 16")
}

func TestOutage_AMissingConnectionIsAnsweredWith503AndWhatWasLookedFor(t *testing.T) {
	t.Parallel()
	root := newRoot(t, newHub(), "", func(durableTask map[string]any) {
		durableTask["storageProvider"].(map[string]any)["type"] = "AzureStorage"
	})
	a := launchStandalone(t, sampleApp, root)

	wantRefusal(t, a, "AzureWebJobsStorage")
}

// wantRefusal checks that a request is refused with a reason that has all words
// in it, that the log has it too, and that the app lives on.
func wantRefusal(t *testing.T, a *app, words ...string) {
	t.Helper()
	got := a.call(http.MethodPost, "/api/orchestrators/E1_HelloSequence", nil)
	if got.status != http.StatusServiceUnavailable {
		t.Errorf("%d %s, want 503", got.status, got.body)
	}
	for _, word := range words {
		if !strings.Contains(got.body, word) {
			t.Errorf("the answer %s does not say %q", got.body, word)
		}
		// The app answers while it still logs its settings.
		eventually(t, 20*time.Second, fmt.Sprintf("%q in the log", word), func() bool { return strings.Contains(a.log(), word) })
	}
	if got := a.call(http.MethodGet, "/", nil); got.status != http.StatusOK || a.ended() {
		t.Errorf("GET / afterwards: %d, want 200 of a process that lives", got.status)
	}
}

func TestOutage_StorageThatIsDownAtStartIsWaitedFor(t *testing.T) {
	t.Parallel()
	proxy, connection := newProxy(t, azuritetest.Start(t))
	proxy.Leave()
	a := launchStandalone(t, sampleApp, newRoot(t, newHub(), connection, nil))
	got := a.call(http.MethodPost, "/api/orchestrators/E1_HelloSequence", nil)
	if got.status != http.StatusServiceUnavailable {
		t.Errorf("while storage is down: %d %s, want 503", got.status, got.body)
	}

	comeBack(t, proxy)

	eventually(t, 60*time.Second, "a start to be accepted", func() bool {
		return a.call(http.MethodPost, "/api/orchestrators/E1_HelloSequence?instanceId=x", nil).status == http.StatusAccepted
	})
	a.completed("/api/durabletask/instances/x", 60*time.Second, helloOutput)
}

func TestOutage_StorageThatGoesDownForAWhileLosesNothing(t *testing.T) {
	t.Parallel()
	proxy, connection := newProxy(t, azuritetest.Start(t))
	a := startStandalone(t, e2eApp, newRoot(t, newHub(), connection, nil))
	trace := t.TempDir() + "/trace"
	started := a.start("Steps", tenSteps(trace))
	awaitStep(t, trace, 4)

	proxy.Leave()
	time.Sleep(5 * time.Second) // long enough for the retries within a request to give up
	comeBack(t, proxy)

	a.completed("/api/durabletask/instances/"+started.ID, 3*time.Minute, tenSquares)
}

// newProxy returns a proxy in front of a storage account that passes everything on, and
// the connection string that leads through it.
func newProxy(t *testing.T, connection string) (*azuritetest.Proxy, string) {
	t.Helper()
	p := azuritetest.NewProxy()
	t.Cleanup(p.Leave)
	through, err := p.Storage(connection)
	if err != nil {
		t.Fatal(err)
	}
	return p, through
}

// comeBack ends an outage.
func comeBack(t *testing.T, p *azuritetest.Proxy) {
	t.Helper()
	if err := p.Return(); err != nil {
		t.Fatal(err)
	}
}
