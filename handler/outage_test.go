package handler

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// What the storage refuses for now is no fault of the app: whoever asks is told to
// come again.
func TestOutage_OfEachStatusIsAnswered503(t *testing.T) {
	t.Parallel()
	for _, status := range []int{401, 403, 408, 429, 500, 502, 503, 504} {
		hub := newFakeHub()
		hub.put("i", history.Running, nil)
		s := readyServer(t, App{}, fakeConfig(t, hub))
		hub.fail(&azcore.ResponseError{StatusCode: status})
		for _, r := range [][2]string{{"POST", "instances/i/raiseEvent/e"}, {"GET", "instances/i"}, {"GET", "instances"}, {"POST", "orchestrators/E1_HelloSequence"}} {
			w := call(s, r[0], managed+r[1], "1")
			if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
				t.Errorf("storage says %d: %s %s is answered with %d %s, want 503 with Retry-After", status, r[0], r[1], w.Code, w.Body)
			}
		}
	}
}

// A silentHub never answers.
type silentHub struct{ *fakeHub }

func silence(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func (silentHub) StartInstance(ctx context.Context, _ provider.TaskMessage, _ []history.RuntimeStatus) error {
	return silence(ctx)
}
func (silentHub) Send(ctx context.Context, _ provider.TaskMessage) error { return silence(ctx) }
func (silentHub) Instance(ctx context.Context, _ string, _ provider.Fetch) (*provider.InstanceState, error) {
	return nil, silence(ctx)
}
func (silentHub) Instances(ctx context.Context, _ provider.Query) (*provider.Page, error) {
	return nil, silence(ctx)
}

// Every route that asks the storage is answered within half a minute, also if the
// storage never answers.
func TestOutage_SilentStorageKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := readyServer(t, App{}, fakeConfig(t, silentHub{newFakeHub()}))
		for _, r := range managementRoutes() {
			if r.always {
				continue
			}
			target := strings.NewReplacer("{", "", "}", "").Replace(r.path)
			began := time.Now()
			w := call(s, r.method, managed+target, "1")
			if took := time.Since(began); took > storageTime || w.Code == http.StatusInternalServerError {
				t.Errorf("%s %s is answered with %d %s after %v, want another answer than 500 within %v", r.method, target, w.Code, w.Body, took, storageTime)
			}
		}
	})
}
