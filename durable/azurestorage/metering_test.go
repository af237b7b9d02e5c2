package azurestorage

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering/meteringtest"
	sdk "go.opentelemetry.io/otel/sdk/metric"
)

func TestMetrics_ReportTheActivityOfAHub(t *testing.T) {
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
		reader := sdk.NewManualReader()
		cfg := testConfig(t)
		cfg.Transport, cfg.MeterProvider = counter, sdk.NewMeterProvider(sdk.WithReader(reader))
		h := openHub(t, cfg)
		stop := runHub(t, h)
		control := h.controlQueues[0]
		mustStart(t, h, "metered", "e1", `1`)
		runHello(t, h, "Tokyo", "Seattle")
		if _, err := control.Put(t.Context(), "not a message of a hub", 0, true); err != nil {
			t.Fatal(err)
		}
		patience.Until(t, "an unreadable message is counted", func() bool {
			return meteringtest.Recorded(t, reader, "durabletask.messages.held_back", "durabletask.reason")["unreadable"] > 0
		})

		for _, want := range []struct{ metric, by, value string }{
			{"durabletask.partitions.owned", "durabletask.queue", control.Name},
			{"durabletask.partitions.changes", "durabletask.partition.change", "acquired"},
			{"durabletask.queue.message.age", "durabletask.queue", control.Name},
			{"durabletask.history_cache.lookups", "durabletask.cache.hit", "true"},
			{"durabletask.storage.operation.duration", "durabletask.outcome", "throttled"},
			{"durabletask.storage.retries", "durabletask.storage.operation", "EntityGroupTransaction"},
		} {
			if n := meteringtest.Recorded(t, reader, want.metric, want.by)[want.value]; n == 0 {
				t.Errorf("%s by %s has no value for %s: %v", want.metric, want.by, want.value, meteringtest.Recorded(t, reader, want.metric, want.by))
			}
		}
		lengths := meteringtest.Recorded(t, reader, "durabletask.queue.length", "durabletask.queue")
		if _, ok := lengths[control.Name]; !ok || len(lengths) != 2 {
			t.Errorf("lengths are reported for the queues %v, want %s and the work-item queue", lengths, control.Name)
		}
		stop()
		if owned := meteringtest.Recorded(t, reader, "durabletask.partitions.owned", "durabletask.queue")[control.Name]; owned != 0 {
			t.Errorf("%v partitions are owned after the stop, want 0", owned)
		}
		if released := meteringtest.Recorded(t, reader, "durabletask.partitions.changes", "durabletask.partition.change")["released"]; released != 1 {
			t.Errorf("%v partitions were released, want 1", released)
		}
		// The metrics agree with the requests that the account received.
		operations := meteringtest.Recorded(t, reader, "durabletask.storage.operation.duration", "durabletask.storage.operation")
		for _, name := range []string{"GetMessages", "PutMessage", "EntityGroupTransaction", "InsertEntity"} {
			saw := counter.Total(func(c azuritetest.Call) bool { return c.Name == name })
			if int(operations[name]) != saw || saw == 0 {
				t.Errorf("%v calls of %s were counted, the account received %d", operations[name], name, saw)
			}
		}
	})
}
