package dispatch

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/crashes"
)

// A watchdog reports orchestrators that do not yield: those that wait for
// something else than a durable task, or compute without end. Their episode's
// goroutine hangs with them, which only the log shows.
type watchdog struct {
	limit time.Duration // until the first report; each next takes twice as long
}

// watch begins to watch the orchestrator with the given name, which runs on
// goroutines with the label. The caller must call yielded when they have yielded.
func (w *watchdog) watch(log *slog.Logger, name, label string) (yielded func()) {
	began := time.Now()
	var mu sync.Mutex
	var timer *time.Timer
	done, reported := false, false
	wait := w.limit
	report := func() {
		mu.Lock()
		defer mu.Unlock()
		if done {
			return
		}
		reported = true
		log.Error("orchestrator does not yield; it must wait for durable tasks only",
			"name", name, "running", time.Since(began).Round(time.Millisecond), "stack", stacks(label))
		wait *= 2
		timer.Reset(wait)
	}
	mu.Lock()
	timer = time.AfterFunc(wait, report)
	mu.Unlock()
	return func() {
		mu.Lock()
		defer mu.Unlock()
		done = true
		timer.Stop()
		if reported {
			log.Warn("orchestrator has yielded", "name", name, "running", time.Since(began).Round(time.Millisecond))
		}
	}
}

// itemLabel is the profiler label of the goroutines of an item. Goroutines that they
// start inherit it, an orchestrator's coroutines too.
const itemLabel = "durable.item"

// labelled runs f with an item's labels on its goroutine.
func labelled(it *item, f func()) {
	pprof.Do(context.Background(), pprof.Labels(itemLabel, it.label, crashes.Label, it.work), func(context.Context) { f() })
}

// stacks returns where the goroutines with the label's value are.
func stacks(value string) string {
	var all bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
		return err.Error()
	}
	// The profile is a list of paragraphs; one with labels has a line of them.
	label := []byte(fmt.Sprintf("%q:%q", itemLabel, value))
	var found [][]byte
	for block := range bytes.SplitSeq(all.Bytes(), []byte("\n\n")) {
		if bytes.Contains(block, label) {
			found = append(found, bytes.TrimSpace(block))
		}
	}
	if len(found) == 0 {
		return "none found"
	}
	return string(bytes.Join(found, []byte("\n\n")))
}
