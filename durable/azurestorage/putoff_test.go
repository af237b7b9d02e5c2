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

// justBegun runs f in a bubble with a hub in which the first checkpoint of an instance was just
// committed, which has called an activity and set a custom status, if there is one.
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

// rowOf returns what the row of an instance says, whatever this process knows besides.
func rowOf(t *testing.T, h *TaskHub) *provider.InstanceState {
	t.Helper()
	row, err := h.instances.Rows.Read(t.Context(), "i")
	if err != nil || row == nil {
		t.Fatalf("there is no row: %v", err)
	}
	return &row.State
}

// That an execution has begun is in its row after a second. Clients in this process are
// told before, and who only knows the row does not rewind it.
func TestPutOff_TheRowSaysAfterASecondThatAnExecutionHasBegun(t *testing.T) {
	justBegun(t, nil, func(t *testing.T, h *TaskHub, _ func() int, _ func()) {
		if got := rowOf(t, h).Status; got != history.Pending {
			t.Errorf("the row says %v at once", got)
		}
		if got := runtimeStatus(t, h, "i"); got != history.Running {
			t.Errorf("a client is told that it is %v", got)
		}
		page, err := h.Instances(t.Context(), provider.Query{})
		if err != nil || len(page.Instances) != 1 || page.Instances[0].Status != history.Running {
			t.Errorf("a list has %+v, %v", page, err)
		}
		for status, want := range map[history.RuntimeStatus]int{history.Pending: 0, history.Running: 1, history.Completed: 0} {
			page, err := h.Instances(t.Context(), provider.Query{Statuses: []history.RuntimeStatus{status}})
			if err != nil || len(page.Instances) != want {
				t.Errorf("a list of those that are %v has %+v, %v; want %d", status, page, err, want)
			}
		}
		again := startMessage("i", "e2", `"in"`)
		exists := (*provider.InstanceExistsError)(nil)
		if err := h.StartInstance(t.Context(), again, []history.RuntimeStatus{history.Running}); !errors.As(err, &exists) || exists.Status != history.Running {
			t.Errorf("a start of what runs ended with %v", err)
		}
		if err := h.Rewind(t.Context(), "i", ""); !errors.Is(err, provider.ErrInstanceChanged) {
			t.Errorf("a rewind ended with %v", err)
		}
		time.Sleep(rowDelay + 100*time.Millisecond)
		if got := rowOf(t, h).Status; got != history.Running {
			t.Errorf("the row says %v after a second", got)
		}
	})
}

// What ends within the second has its row written once.
func TestPutOff_ARowIsWrittenOnceForWhatEndsSooner(t *testing.T) {
	justBegun(t, nil, func(t *testing.T, h *TaskHub, merges func() int, _ func()) {
		completeActivity(t, h, `"a"`)
		commitActivity(t, mustNext(t, h), 1, `["b"]`)
		completeActivity(t, h, `"b"`)
		commitEnd(t, mustNext(t, h), 2, `"out"`)
		if left := h.started.executions(); len(left) > 0 {
			t.Errorf("after its end, %v count as begun only", left)
		}
		row, n := rowOf(t, h), merges()
		if row.Status != history.Completed || row.Name != "HelloSeq" || n != 1 {
			t.Errorf("the row is %+v, written %d times; want it completed at once", row, n)
		}
		time.Sleep(2 * rowDelay)
		if n := merges(); n != 1 {
			t.Errorf("the row was written %d times in the end", n)
		}
	})
}

// A second counts from the first checkpoint, whatever others follow.
func TestPutOff_IsNotPutOffAnewByCheckpoints(t *testing.T) {
	justBegun(t, nil, func(t *testing.T, h *TaskHub, merges func() int, _ func()) {
		time.Sleep(rowDelay / 2)
		completeActivity(t, h, `"a"`)
		commitActivity(t, mustNext(t, h), 1, `["b"]`)
		time.Sleep(rowDelay/2 + 100*time.Millisecond)
		if row, n := rowOf(t, h), merges(); row.Status != history.Running || n != 1 {
			t.Errorf("the row is %+v, written %d times; want it running at once", row, n)
		}
	})
}

// A custom status is not late.
func TestPutOff_ACustomStatusIsInTheRowAtOnce(t *testing.T) {
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

// Who takes the partition over finds the row written.
func TestPutOff_ARowIsWrittenBeforeThePartitionIsGivenUp(t *testing.T) {
	justBegun(t, nil, func(t *testing.T, h *TaskHub, _ func() int, stop func()) {
		begin := time.Now()
		stop()
		if row := rowOf(t, h); row.Status != history.Running || time.Since(begin) >= rowDelay {
			t.Errorf("the row is %+v after %v", row, time.Since(begin))
		}
	})
}

// A start in the place of an instance that goes on is not refused because a worker writes
// the row of that at the same time.
func TestStartInstance_ReplacesAnInstanceWhoseRowIsWrittenMeanwhile(t *testing.T) {
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
			t.Errorf("the row is %+v, and %d writes did not come", row, writes)
		}
	})
}

// A purge does not come across a row that is written in its middle since it was put off.
func TestPutOff_ARowIsWrittenBeforeItsInstanceIsPurged(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		counter := newCounter(t)
		var purging atomic.Bool
		counter.Intercept = func(call azuritetest.Call, _ *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
			if purging.Load() && isCommit(call) { // between reading the row and deleting it
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
			t.Errorf("a purge right after the begin: %v", err)
		}
	})
}

// What one execution has begun says nothing of another with its ID, which a client has put in
// its place since.
func TestPutOff_IsOfOneExecution(t *testing.T) {
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
		for name, known := range map[string]beginnings{"one": b.of(c.of.InstanceID), "each": b.each()} {
			state := &provider.InstanceState{Instance: c.of, Status: c.row}
			if known.correct(state); state.Status != c.want || state.LastUpdatedAt.Equal(at) != (c.row != c.want) {
				t.Errorf("%s: %v of %v is told as %v of %v, want %v", name, c.row, c.of, state.Status, state.LastUpdatedAt, c.want)
			}
		}
	}
	if b.remove("i"); len(b.each()) > 0 || b.of("i") != nil {
		t.Errorf("after it was removed: %v", b.each())
	}
}
