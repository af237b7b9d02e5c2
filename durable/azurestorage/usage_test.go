package azurestorage

import (
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Requests are counted without a meter, exactly as the account receives them. A rejected request is
// an error; a resource that exists already is not.
func TestUsage_EqualsTheRequestsOfTheAccount(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		counter := newCounter(t)
		counter.CountEmptyPolls = true
		var refused atomic.Bool
		counter.Intercept = func(call azuritetest.Call, req *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
			if call.Name == "EntityGroupTransaction" && refused.CompareAndSwap(false, true) {
				return azuritetest.ErrorResponse(req, http.StatusServiceUnavailable, "ServerBusy"), nil
			}
			return next()
		}
		cfg := testConfig(t)
		cfg.Transport = counter
		h := openHub(t, cfg)
		stop := runHub(t, h)
		mustStart(t, h, "counted", "e1", `1`)
		runHello(t, h, "Tokyo")
		stop()
		var want []provider.Usage
		for _, service := range []string{"queue", "table", "blob"} {
			n := counter.Total(func(c azuritetest.Call) bool { return c.Service == service })
			want = append(want, provider.Usage{Part: service, Requests: int64(n)})
		}
		want[1].Errors = 1
		if got := h.Usage(); !slices.Equal(got, want) || want[0].Requests == 0 || want[1].Requests == 0 {
			t.Errorf("the usage is %+v, want %+v", got, want)
		}
	})
}
