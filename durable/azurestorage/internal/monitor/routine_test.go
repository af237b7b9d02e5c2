package monitor

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/durablefunctions-go/durablefunctions/durable/durabletest/oneprocessor"
)

func TestRoutine_LogsOneLineWithCountsPerMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		r := &routine{log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))}
		lines := func(text string) int {
			r.mu.Lock()
			defer r.mu.Unlock()
			return strings.Count(out.String(), text)
		}
		for range 3 {
			r.Record("MessageGone", []any{"messageId", "m"})
			time.Sleep(time.Second)
		}
		r.Record("DuplicateMessageDetected", nil)
		if debug, info := lines("level=DEBUG"), lines("level=INFO"); debug != 4 || info != 0 {
			t.Errorf("at once: %d debug and %d info lines, want 4 and 0", debug, info)
		}
		time.Sleep(2 * routineInterval)
		synctest.Wait()
		if info := lines("level=INFO"); info != 1 || lines("DuplicateMessageDetected=1 MessageGone=3") != 1 {
			t.Errorf("after two minutes: %d info lines, want one with all counts\n%s", info, out.String())
		}
		r.Record("MessageGone", nil)
		r.Report() // as at the end of Run
		time.Sleep(2 * routineInterval)
		synctest.Wait()
		if info := lines("level=INFO"); info != 2 || lines("held back\" MessageGone=1") != 1 {
			t.Errorf("at the end: %d info lines, want a second one\n%s", info, out.String())
		}
		r.Report()
		if info := lines("level=INFO"); info != 2 {
			t.Errorf("a report without events wrote a line")
		}
	})
}
