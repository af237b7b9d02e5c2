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

func TestOutage_AMissingConnectionIsAnsweredWith503AndTheExpectedSettings(t *testing.T) {
	t.Parallel()
	root := newRoot(t, newHub(), "", func(durableTask map[string]any) {
		durableTask["storageProvider"].(map[string]any)["type"] = "AzureStorage"
	})
	a := launchStandalone(t, sampleApp, root)

	wantRefusal(t, a, "AzureWebJobsStorage")
}

// wantRefusal checks that a request is refused with a reason that contains all words, that the log contains
// them too, and that the app keeps running.
func wantRefusal(t *testing.T, a *app, words ...string) {
	t.Helper()
	got := a.call(http.MethodPost, "/api/orchestrators/E1_HelloSequence", nil)
	if got.status != http.StatusServiceUnavailable {
		t.Errorf("%d %s, want 503", got.status, got.body)
	}
	for _, word := range words {
		if !strings.Contains(got.body, word) {
			t.Errorf("the response %s does not contain %q", got.body, word)
		}
		// The app may answer before it has logged its settings.
		eventually(t, 20*time.Second, fmt.Sprintf("%q in the log", word), func() bool { return strings.Contains(a.log(), word) })
	}
	if got := a.call(http.MethodGet, "/", nil); got.status != http.StatusOK || a.ended() {
		t.Errorf("GET / afterwards: %d, want 200 from a live process", got.status)
	}
}

func TestOutage_TheAppWaitsForStorageThatIsDownAtStart(t *testing.T) {
	t.Parallel()
	proxy, connection := newProxy(t, azuritetest.Start(t))
	proxy.Stop()
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

func TestOutage_AStorageOutageLosesNothing(t *testing.T) {
	t.Parallel()
	proxy, connection := newProxy(t, azuritetest.Start(t))
	a := startStandalone(t, e2eApp, newRoot(t, newHub(), connection, nil))
	trace := t.TempDir() + "/trace"
	started := a.start("Steps", tenSteps(trace))
	awaitStep(t, trace, 4)

	proxy.Stop()
	time.Sleep(5 * time.Second) // longer than the retries of a request
	comeBack(t, proxy)

	a.completed("/api/durabletask/instances/"+started.ID, 3*time.Minute, tenSquares)
}

// newProxy returns a transparent proxy for a storage account, and the connection string that uses it.
func newProxy(t *testing.T, connection string) (*azuritetest.Proxy, string) {
	t.Helper()
	p := azuritetest.NewProxy()
	t.Cleanup(p.Stop)
	through, err := p.Storage(connection)
	if err != nil {
		t.Fatal(err)
	}
	return p, through
}

// comeBack ends an outage.
func comeBack(t *testing.T, p *azuritetest.Proxy) {
	t.Helper()
	if err := p.Restart(); err != nil {
		t.Fatal(err)
	}
}
