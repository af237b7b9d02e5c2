package dispatch_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// startOf returns the start of an instance of the orchestrator "O".
func startOf(id string) *history.ExecutionStarted {
	return &history.ExecutionStarted{Name: "O", Instance: history.OrchestrationInstance{InstanceID: id}}
}

// replays replays the start of an execution and closes it.
func replays(start *history.ExecutionStarted) func(replay.Code) {
	return func(code replay.Code) {
		x := replay.New(start.Instance, code)
		defer x.Close()
		x.Episode([]history.Event{&history.OrchestratorStarted{}, start}, nil)
	}
}

func TestBound_GivesUpCodeWithoutProgressAndNamesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		released := make(chan struct{})
		defer close(released)
		for what, code := range map[string]replay.Code{
			"code": func(*replay.Execution, *string) (*string, error) {
				<-released
				return nil, nil
			},
			"a deferred call": func(x *replay.Execution, _ *string) (*string, error) {
				defer func() { <-released }()
				waitEvent(x, "never")
				return nil, nil
			},
		} {
			start := time.Now()
			err := dispatch.RunWithLimit(startOf("i"), code, replays(startOf("i")))
			stall, ok := errors.AsType[*dispatch.StallError](err)
			if !ok || stall.InstanceID != "i" || stall.Limit != 10*time.Second || !strings.Contains(stall.Stack, "TestBound_GivesUp") || strings.Count(err.Error(), stall.Stack) != 1 ||
				!strings.HasPrefix(err.Error(), `orchestrator "O" of instance "i" does not yield: it made no durable call for 10s; it must wait for durable tasks only`+"\n") {
				t.Errorf("the error for %s that blocks is %v", what, err)
			}
			if took := time.Since(start); took < 10*time.Second || took > 10200*time.Millisecond {
				t.Errorf("%s that blocks was abandoned after %v, want 10 s and at most two ticks", what, took)
			}
		}
	})
}

func TestBound_WaitsWhileThereIsProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		if err := dispatch.RunWithLimit(startOf("i"), func(x *replay.Execution, _ *string) (*string, error) {
			for range 10 {
				time.Sleep(9 * time.Second)
				x.NewGUID()
				calls++
			}
			return nil, nil
		}, replays(startOf("i"))); err != nil || calls != 10 {
			t.Errorf("after %d calls: %v", calls, err)
		}
	})
}

func TestBound_PanicsIfTheFunctionPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer func() {
			if text, _ := recover().(string); !strings.Contains(text, "wrong") {
				t.Errorf("the panic is %q", text)
			}
		}()
		_ = dispatch.RunWithLimit(startOf("i"), helloSequence, func(replay.Code) { panic("wrong") })
	})
}

func TestReplays_RunNoCodeThatHangsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		released, runs := make(chan struct{}), new(atomic.Int64)
		code := func(*replay.Execution, *string) (*string, error) {
			runs.Add(1)
			<-released
			return nil, nil
		}
		var all dispatch.ReplayLimiter
		run := func(id string) error { return all.Run(startOf(id), code, replays(startOf(id))) }
		first := run("a")
		for _, id := range []string{"a", "b", "c", "d", "e", "d"} {
			err := run(id)
			stall, ok := errors.AsType[*dispatch.StallError](err)
			if !ok || stall.InstanceID != id || !strings.Contains(stall.Stack, "TestReplays_RunNoCode") {
				t.Errorf("%s: %v", id, err)
			}
		}
		if n := runs.Load(); n != 3 {
			t.Errorf("the code ran %d times, want 3", n)
		}
		if repeated := run("a").Error(); !strings.HasPrefix(first.Error(), repeated+"\n") {
			t.Errorf("the first error is %v, the next is %s", first, repeated)
		}
		close(released)
		synctest.Wait()
		if err := run("a"); err != nil || runs.Load() != 4 {
			t.Errorf("after the code has returned it ran %d times: %v", runs.Load(), err)
		}
	})
}
