package azurestorage

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// justBegun runs f in a bubble with a hub that has just committed the first checkpoint of an
// instance. The checkpoint schedules an activity and sets the custom status unless it is nil.
func justBegun(t *testing.T, customStatus *string, f func(t *testing.T, h *TaskHub, merges func() int, stop func())) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		counter := newCounter(t)
		cfg := testConfig(t)
		cfg.Transport = counter
		h, stop := serving(t, cfg)
		counter.Reset()
		done := starting(t, h, startMessage("i", "e1", `"in"`))
		item := mustNext(t, h)
		ev, msg := schedule(item, 0, `["a"]`)
		mustCommit(t, item, &provider.Checkpoint{
			Instance: item.Instance, NewEvents: episode(item.Messages, ev), Activities: []provider.TaskMessage{msg}, CustomStatus: customStatus,
		})
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		f(t, h, func() int {
			return counter.Total(func(c azuritetest.Call) bool { return c.Name == "MergeEntity" })
		}, stop)
	})
}

// rowOf returns the state in the instance's row, without this process's knowledge of started
// executions.
func rowOf(t *testing.T, h *TaskHub) *provider.InstanceState {
	t.Helper()
	row, err := h.instances.Rows.Read(t.Context(), "i")
	if err != nil || row == nil {
		t.Fatalf("cannot read the row: %v", err)
	}
	return &row.State
}

// The row says after a second that an execution has started. Clients in this process learn it
// immediately, and a client that knows only the row cannot rewind it.
func TestDelayedRow_IsWrittenAfterTheDelay(t *testing.T) {
	justBegun(t, nil, func(t *testing.T, h *TaskHub, _ func() int, _ func()) {
		if got := rowOf(t, h).Status; got != history.Pending {
			t.Errorf("the row says %v before the delay, want Pending", got)
		}
		if got := runtimeStatus(t, h, "i"); got != history.Running {
			t.Errorf("a client gets the status %v, want Running", got)
		}
		page, err := h.Instances(t.Context(), provider.Query{})
		if err != nil || len(page.Instances) != 1 || page.Instances[0].Status != history.Running {
			t.Errorf("the list is %+v, %v; want one running instance", page, err)
		}
		for status, want := range map[history.RuntimeStatus]int{history.Pending: 0, history.Running: 1, history.Completed: 0} {
			page, err := h.Instances(t.Context(), provider.Query{Statuses: []history.RuntimeStatus{status}})
			if err != nil || len(page.Instances) != want {
				t.Errorf("the list with status %v is %+v, %v; want %d instances", status, page, err, want)
			}
		}
		again := startMessage("i", "e2", `"in"`)
		exists := (*provider.InstanceExistsError)(nil)
		if err := h.StartInstance(t.Context(), again, []history.RuntimeStatus{history.Running}); !errors.As(err, &exists) || exists.Status != history.Running {
			t.Errorf("a start of the running instance: %v, want InstanceExistsError with status Running", err)
		}
		if err := h.Rewind(t.Context(), "i", ""); !errors.Is(err, provider.ErrInstanceChanged) {
			t.Errorf("a rewind: %v, want ErrInstanceChanged", err)
		}
		time.Sleep(rowDelay + 100*time.Millisecond)
		if got := rowOf(t, h).Status; got != history.Running {
			t.Errorf("the row says %v after the delay, want Running", got)
		}
	})
}

// The row of an execution that ends within a second is written once.
func TestDelayedRow_IsWrittenOnceIfTheExecutionEndsSooner(t *testing.T) {
	justBegun(t, nil, func(t *testing.T, h *TaskHub, merges func() int, _ func()) {
		completeActivity(t, h, `"a"`)
		commitActivity(t, mustNext(t, h), 1, `["b"]`)
		completeActivity(t, h, `"b"`)
		commitEnd(t, mustNext(t, h), 2, `"out"`)
		if left := h.late.started.executions(); len(left) > 0 {
			t.Errorf("after their end, executions %v are still registered", left)
		}
		row, n := rowOf(t, h), merges()
		if row.Status != history.Completed || row.Name != "HelloSeq" || n != 1 {
			t.Errorf("the row is %+v, written %d times; want Completed after one write", row, n)
		}
		time.Sleep(2 * rowDelay)
		if n := merges(); n != 1 {
			t.Errorf("the row was written %d times, want 1", n)
		}
	})
}

// A worker may load an instance before the delayed write, and dispatch it after the write. The next
// checkpoint then uses the row that was written.
func TestDelayedRow_IsKnownToASessionThatWasLoadedEarlier(t *testing.T) {
	justBegun(t, nil, func(t *testing.T, h *TaskHub, merges func() int, _ func()) {
		completeActivity(t, h, `"a"`)
		time.Sleep(2 * rowDelay)
		commitEnd(t, mustNext(t, h), 1, `"out"`)
		if row, n := rowOf(t, h), merges(); row.Status != history.Completed || n != 2 {
			t.Errorf("the row is %+v after %d requests to write it; want Completed after 2", row, n)
		}
	})
}

// The delay counts from the first checkpoint, even if others follow.
func TestDelayedRow_IsNotDelayedFurtherByCheckpoints(t *testing.T) {
	justBegun(t, nil, func(t *testing.T, h *TaskHub, merges func() int, _ func()) {
		time.Sleep(rowDelay / 2)
		completeActivity(t, h, `"a"`)
		commitActivity(t, mustNext(t, h), 1, `["b"]`)
		time.Sleep(rowDelay/2 + 100*time.Millisecond)
		if row, n := rowOf(t, h), merges(); row.Status != history.Running || n != 1 {
			t.Errorf("the row is %+v, written %d times; want Running after one write", row, n)
		}
	})
}

// The first custom status is written without delay.
func TestDelayedRow_IsNotUsedForACustomStatus(t *testing.T) {
	justBegun(t, new(`"first"`), func(t *testing.T, h *TaskHub, _ func() int, _ func()) {
		if row := rowOf(t, h); row.Status != history.Running || row.CustomStatus == nil || *row.CustomStatus != `"first"` {
			t.Errorf("the row is %+v", row)
		}
	})
	t.Run("of a later checkpoint", func(t *testing.T) {
		justBegun(t, nil, func(t *testing.T, h *TaskHub, _ func() int, _ func()) {
			completeActivity(t, h, `"a"`)
			item := mustNext(t, h)
			ev, msg := schedule(item, 1, `["b"]`)
			mustCommit(t, item, &provider.Checkpoint{
				Instance: item.Instance, NewEvents: episode(item.Messages, ev), Activities: []provider.TaskMessage{msg}, CustomStatus: new(`"second"`),
			})
			synctest.Wait()
			if row := rowOf(t, h); row.Status != history.Running || row.CustomStatus == nil || *row.CustomStatus != `"second"` {
				t.Errorf("the row is %+v", row)
			}
		})
	})
}

// The row is written before the partition is released to another worker.
func TestDelayedRow_IsWrittenBeforeThePartitionIsReleased(t *testing.T) {
	justBegun(t, nil, func(t *testing.T, h *TaskHub, _ func() int, stop func()) {
		begin := time.Now()
		stop()
		if row := rowOf(t, h); row.Status != history.Running || time.Since(begin) >= rowDelay {
			t.Errorf("the row is %+v after %v", row, time.Since(begin))
		}
	})
}

// A start that replaces a running instance does not fail because a worker writes that instance's
// row at the same time.
func TestStartInstance_ReplacesAnInstanceDuringARowWrite(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		cfg := testConfig(t)
		other := openHub(t, cfg)
		counter := newCounter(t)
		writes := 2
		counter.Intercept = func(call azuritetest.Call, _ *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
			if call.Name == "UpdateEntity" && strings.Contains(call.Target, "Instances") && writes > 0 {
				writes--
				mustMerge(t, other, "i", "", history.Running)
			}
			return next()
		}
		cfg.Transport = counter
		h := openHub(t, cfg)
		mustStart(t, h, "i", "e1", `1`)
		mustStart(t, h, "i", "e2", `2`)
		if row := rowOf(t, h); row.Instance.ExecutionID != "e2" || writes != 0 {
			t.Errorf("the row is %+v, and %d interfering writes are left", row, writes)
		}
	})
}

// A purge writes a delayed row first, so that the row does not change during the purge.
func TestDelayedRow_IsWrittenBeforeAPurge(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		counter := newCounter(t)
		var purging atomic.Bool
		counter.Intercept = func(call azuritetest.Call, _ *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
			if purging.Load() && isCommit(call) { // between the read and the deletion of the row
				time.Sleep(2 * rowDelay)
			}
			return next()
		}
		cfg := testConfig(t)
		cfg.Transport = counter
		h, _ := serving(t, cfg)
		done := starting(t, h, startMessage("i", "e1", `"in"`))
		item := mustNext(t, h)
		ev, msg := schedule(item, 0, `["a"]`)
		mustCommit(t, item, &provider.Checkpoint{Instance: item.Instance, NewEvents: episode(item.Messages, ev), Activities: []provider.TaskMessage{msg}})
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		purging.Store(true)
		err := h.Purge(t.Context(), "i", nil)
		purging.Store(false)
		if err != nil {
			t.Errorf("a purge right after the start: %v", err)
		}
	})
}

// A started execution does not affect another execution with the same ID that a client has started
// since.
func TestDelayedRow_AffectsOneExecution(t *testing.T) {
	t.Parallel()
	var b startedRegistry
	first, second := history.OrchestrationInstance{InstanceID: "i", ExecutionID: "e1"}, history.OrchestrationInstance{InstanceID: "i", ExecutionID: "e2"}
	at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	b.add(first, at)
	for _, c := range []struct {
		of        history.OrchestrationInstance
		row, want history.RuntimeStatus
	}{
		{first, history.Pending, history.Running},
		{first, history.Completed, history.Completed},
		{first, history.Suspended, history.Suspended},
		{second, history.Pending, history.Pending},
		{history.OrchestrationInstance{InstanceID: "j", ExecutionID: "e1"}, history.Pending, history.Pending},
	} {
		for name, known := range map[string]startedExecutions{"one": b.of(c.of.InstanceID), "each": b.executions()} {
			state := &provider.InstanceState{Instance: c.of, Status: c.row}
			if known.correct(state); state.Status != c.want || state.LastUpdatedAt.Equal(at) != (c.row != c.want) {
				t.Errorf("%s: %v of %v is corrected to %v of %v, want %v", name, c.row, c.of, state.Status, state.LastUpdatedAt, c.want)
			}
		}
	}
	if b.remove("i"); len(b.executions()) > 0 || b.of("i") != nil {
		t.Errorf("after the removal: %v", b.executions())
	}
}
