package incidents

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// idleRequests returns the number of storage requests of an idle worker in 5 minutes, in which its page is
// requested scrapes times per second.
func idleRequests(t *testing.T, in store, scrapes int) (n int) {
	t.Helper()
	inLab(t, func(l *lab) {
		l.join("w", in, calm, durable.Config{})
		time.Sleep(10 * time.Minute) // until the worker only waits
		before := len(l.account.Log())
		for range 5 * 60 {
			for range scrapes {
				l.workers["w"].page.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil))
			}
			time.Sleep(time.Second)
		}
		n = len(l.account.Log()) - before
	})
	return n
}

// The worker has three queues in queues and tables: two requests for each, and one or two for the owners.
// A worker of partition logs reads the heartbeats with one request.
func TestPage_CausesStorageRequestsAtMostOncePer30Seconds(t *testing.T) {
	t.Parallel()
	for name, most := range map[string]int{"azurestorage": 8, "partitionlog": 1, "embedded": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			without := idleRequests(t, stores[name], 0)
			with := idleRequests(t, stores[name], 3)
			t.Logf("5 minutes have %d storage requests, and %d more with three scrapes per second", without, with-without)
			if extra, looks := with-without, 10; extra > looks*most || extra < looks*most/2 {
				t.Errorf("%d scrapes caused %d storage requests, want at most %d and at least half of them", 3*5*60, extra, looks*most)
			}
		})
	}
}
