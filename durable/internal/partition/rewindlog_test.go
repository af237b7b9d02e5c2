package partition

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/partition/partitiontest"
)

// The log entry of a rewind has the same event name as in .NET
// (WebJobs.Extensions.DurableTask/EndToEndTraceHelper.cs, FunctionRewound).
func TestRewind_IsLoggedWithTheEventNameOfDotNet(t *testing.T) {
	var log bytes.Buffer
	h, err := newDisk().openWith(Config{DrainTimeout: time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- h.Run(ctx) }()
	r := &rig{Stage: &partitiontest.Stage{T: t, Hub: h}, Partition: h}
	r.Start("i")
	r.Finish(r.Next(), &history.ExecutionCompleted{Header: history.Header{EventID: 1}, Status: history.Failed})
	r.Must(h.Rewind(t.Context(), "i", "it was mended"))
	if err := h.Rewind(t.Context(), "nobody", ""); err == nil {
		t.Error("Rewind of an unknown instance returned no error")
	}
	cancel()
	r.Must(<-stopped)
	r.Must(closeAll(h))
	if n := strings.Count(log.String(), "event=FunctionRewound"); n != 1 || !strings.Contains(log.String(), `event=FunctionRewound instanceId=i executionId="execution of i" reason="it was mended"`) {
		t.Errorf("the log contains %d rewinds:\n%s", n, &log)
	}
}
