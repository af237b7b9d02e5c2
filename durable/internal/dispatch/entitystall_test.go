package dispatch_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/google/go-cmp/cmp"
)

// hangInOperation blocks, which operations must not do.
//
//go:noinline
func hangInOperation(released <-chan struct{}) { <-released }

func TestWatchdog_ReportsAnOperationThatDoesNotReturn(t *testing.T) {
	bubble(t, func(b *bench) {
		released := make(chan struct{})
		fns := functions{entities: map[string]dispatch.EntityCode{"counter": func(ctx context.Context, op *entity.Operation) entity.Result {
			if op.Name == "hang" {
				hangInOperation(released)
				return entity.Result{State: op.State}
			}
			return counter(ctx, op)
		}}}
		d := b.dispatcher(fns)
		start := time.Now()
		for _, key := range []string{"a", "b"} {
			b.signal(counterID(key), "hang", nil, time.Time{})
		}
		time.Sleep(5 * time.Second)
		if all := d.Stalled(); len(all) != 0 {
			t.Errorf("stalled after 5 s: %v", all)
		}
		time.Sleep(20 * time.Second)
		if n := b.log.count("operation of an entity does not return"); n != 2 {
			t.Errorf("there were %d reports in 25 s, want one for each entity:\n%s", n, b.log)
		}
		stacks := 0
		for line := range strings.Lines(b.log.String()) {
			if strings.Contains(line, "does not return") && (!strings.Contains(line, "instanceId=@counter@") ||
				!strings.Contains(line, "name=counter ") || !strings.Contains(line, "operation=hang")) {
				t.Errorf("the report does not name the operation:\n%s", line)
			}
			stacks += strings.Count(line, "hangInOperation")
		}
		if stacks != 1 {
			t.Errorf("the log has %d stacks, want 1:\n%s", stacks, b.log)
		}
		all := d.Stalled()
		for i := range all {
			if !strings.Contains(all[i].Stack, "hangInOperation") {
				t.Errorf("the stack is %s", all[i].Stack)
			}
			all[i].Stack, all[i].Instances = "", nil
		}
		want := []dispatch.BlockedFunction{{Kind: "entity", Name: "counter", Operation: "hang", Runs: true, Since: start}}
		if diff := cmp.Diff(want, all); diff != "" {
			t.Errorf("stalled (-want +got):\n%s", diff)
		}
		time.Sleep(time.Hour)
		if n := b.log.count("was abandoned"); n != 0 {
			t.Errorf("the operation was abandoned:\n%s", b.log)
		}
		close(released)
		synctest.Wait()
		if n := b.log.count("operation of an entity has returned"); n != 2 || len(d.Stalled()) != 0 {
			t.Errorf("the returns were logged %d times, want 2; stalled: %v", n, d.Stalled())
		}
	})
}

func TestWatchdog_DoesNotReportOperationsThatReturn(t *testing.T) {
	bubble(t, func(b *bench) {
		d := b.dispatcher(entityFunctions)
		for _, op := range []string{"add", "panic", "goexit", "fail"} {
			b.signal(counterID("a"), op, 1, time.Time{})
			time.Sleep(time.Minute)
		}
		if n := b.log.count("does not return"); n != 0 || len(d.Stalled()) != 0 {
			t.Errorf("an operation that returned was reported:\n%s", b.log)
		}
	})
}

func TestWatchdog_ListsOrchestratorsThatDoNotYield(t *testing.T) {
	bubble(t, func(b *bench) {
		k := newBlocker()
		defer close(k.released)
		d := b.dispatcher(k.functions(blocks["a read"]))
		start := time.Now()
		b.start("i", "O", nil)
		b.start("j", "O", nil)
		time.Sleep(20 * time.Second)
		all := d.Stalled()
		if len(all) != 1 || len(all[0].Instances) != 2 || !all[0].Runs || all[0].Since != start || !strings.Contains(all[0].Stack, "io.(*Pipe") {
			t.Errorf("stalled: %v", all)
		}
		b.send("i", &history.ExecutionTerminated{})
		b.send("j", &history.ExecutionTerminated{})
		time.Sleep(20 * time.Second)
		if all := d.Stalled(); len(all) != 0 {
			t.Errorf("stalled after the orchestrator was abandoned: %v", all)
		}
	})
}
