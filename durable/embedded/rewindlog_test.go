package embedded

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// A rewind has the name in the log that it has in .NET
// (WebJobs.Extensions.DurableTask/EndToEndTraceHelper.cs, FunctionRewound).
func TestRewind_IsLoggedByTheNameOfDotNet(t *testing.T) {
	var log bytes.Buffer
	h, err := Open(filepath.Join(t.TempDir(), "hub.db"), Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- h.Run(ctx) }()
	r := &rig{T: t, Hub: h}
	r.start("i")
	r.finish(r.next(), &history.ExecutionCompleted{Header: history.Header{EventID: 1}, Status: history.Failed})
	r.must(h.Rewind(t.Context(), "i", "it was mended"))
	if err := h.Rewind(t.Context(), "nobody", ""); err == nil {
		t.Error("nobody was rewound")
	}
	cancel()
	r.must(<-stopped)
	r.must(h.Close())
	if n := strings.Count(log.String(), "event=FunctionRewound"); n != 1 || !strings.Contains(log.String(), `event=FunctionRewound instanceId=i executionId="execution of i" reason="it was mended"`) {
		t.Errorf("the log tells of %d rewinds:\n%s", n, &log)
	}
}
