package durable_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay/replaytest"
	"github.com/google/go-cmp/cmp"
)

func TestContext_IsReplayingOnlyDuringReplay(t *testing.T) {
	t.Parallel()
	var got []bool
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (int, error) {
		got = append(got, ctx.IsReplaying())
		ctx.Sleep(0)
		got = append(got, ctx.IsReplaying())
		return 0, nil
	})
	s.Compare, s.Cached = false, false
	s.Start(nil)
	s.Episode(fired(0))
	if diff := cmp.Diff(got, []bool{false, true, false}); diff != "" {
		t.Errorf("replaying (-got +want):\n%s", diff)
	}
}

func TestContext_LoggerLogsEveryMessageOnce(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	r := authors(durable.Orchestrator("Main", func(ctx *durable.Context, _ durable.Void) (int, error) {
		grouped := ctx.Logger().With("a", 1).WithGroup("g")
		defer ctx.Logger().Info("deferred")
		ctx.Logger().Info("begins")
		ctx.Sleep(0)
		grouped.Warn("goes on", "b", 2)
		ctx.Sleep(0)
		ctx.Logger().Debug("not at this level")
		return 0, nil
	}))
	s := stageOf(t, durable.WithLogger(r, log))
	s.Cached = false // every episode replays, and the orchestrator is unwound after it
	s.Start(nil)
	s.Compare = false // the first comparison ran before the first episode was history
	first := out.String()
	s.Episode(fired(0))
	s.Episode(fired(1))
	ids := "instanceId=abc executionId=e0 name=Main"
	if want := strings.Repeat("level=INFO msg=begins "+ids+"\n", 2); first != want {
		t.Errorf("first episode logged\n%s\nwant\n%s", first, want)
	}
	want := "level=WARN msg=\"goes on\" " + ids + " a=1 g.b=2\nlevel=INFO msg=deferred " + ids + "\n"
	if got := strings.TrimPrefix(out.String(), first); got != want {
		t.Errorf("logged\n%s\nwant\n%s", got, want)
	}
}

func TestContext_NewUUIDEqualsDurabletaskDotnet(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) ([]durable.UUID, error) {
		got := []durable.UUID{ctx.NewUUID(), ctx.NewUUID()}
		ctx.Sleep(time.Minute)
		return append(got, ctx.NewUUID()), nil
	})
	s.Start(nil) // instance abc at 2024-10-01T12:00:00.1234567Z
	s.Now = s.Now.Add(time.Minute)
	s.Episode(fired(0))
	out := s.Output(history.Completed)
	if !strings.HasPrefix(out, `["c98c7c85-b4aa-5e52-9eac-441911159cbc","`) {
		t.Errorf("got %s", out)
	}
	ids := strings.Split(strings.Trim(out, "[]"), ",")
	if len(ids) != 3 || ids[0] == ids[1] || ids[1] == ids[2] || ids[0] == ids[2] {
		t.Errorf("UUIDs are not distinct: %s", out)
	}
	var read []durable.UUID
	if err := json.Unmarshal([]byte(out), &read); err != nil || read[0].String() != "c98c7c85-b4aa-5e52-9eac-441911159cbc" {
		t.Errorf("read %v, %v", read, err)
	}
}

func TestContext_CustomStatusKeepsTheLastValue(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (int, error) {
		ctx.Sleep(0)
		ctx.SetCustomStatus("first")
		ctx.SetCustomStatus(map[string]any{"step": 2, "note": "<ü>"})
		ctx.Sleep(0)
		ctx.Sleep(0)
		ctx.SetCustomStatus(nil)
		return 0, nil
	})
	var got []string
	status := func() {
		if s.Outcome.CustomStatus == nil {
			got = append(got, "none")
		} else {
			got = append(got, *s.Outcome.CustomStatus)
		}
	}
	s.Start(nil)
	status()
	s.Episode(fired(0))
	status()
	s.Evict()
	s.Episode(fired(1))
	status()
	s.Episode(fired(2))
	status()
	want := []string{"none", `{"note":"<ü>","step":2}`, `{"note":"<ü>","step":2}`, "none"}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("custom status (-got +want):\n%s", diff)
	}
}

func TestContext_CustomStatusHasAtMost16KBOfUTF16(t *testing.T) {
	t.Parallel()
	const tooLarge = "The UTF-16 size of the JSON-serialized payload must not exceed 16 KB. The current payload size is 17 KB."
	for _, c := range []struct {
		name, status string
		ok           bool
	}{
		// .NET counts whole KB: 17 KB are too many.
		{"the largest", strings.Repeat("a", 17*512-3), true},
		{"one character too many", strings.Repeat("a", 17*512-2), false},
		{"one character of two units too many", strings.Repeat("😀", 17*256-1), false},
		{"the largest with characters of two units", strings.Repeat("😀", 17*256-2), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := stage(t, func(ctx *durable.Context, _ durable.Void) (int, error) {
				ctx.SetCustomStatus(c.status)
				return 0, nil
			})
			s.Start(nil)
			if c.ok {
				wantOutput(t, s, "0")
			} else if got := s.Output(history.Failed); got != tooLarge {
				t.Errorf("failed with %q, want %q", got, tooLarge)
			}
		})
	}
}

func TestContext_CustomStatusThatCannotBeEncodedFails(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (int, error) {
		ctx.SetCustomStatus(func() {})
		return 0, nil
	})
	s.Start(nil)
	wantFailure(t, s, "durable: encode custom status of type func(): json: unsupported type: func()")
}

// The first run must see the same time as a replay from the history.
func TestContext_NowIsUTCAndTruncatedTo100Nanoseconds(t *testing.T) {
	t.Parallel()
	now := time.Date(2024, 10, 1, 14, 0, 0, 123456789, time.FixedZone("", 2*3600))
	begin := &history.OrchestratorStarted{Header: history.Header{EventID: -1, Timestamp: now}}
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (string, error) {
		ctx.Sleep(0)
		return ctx.Now().Format(time.RFC3339Nano), nil
	})
	s.Start(nil)
	s.Episode(begin, fired(0))
	wantOutput(t, s, `"2024-10-01T12:00:00.1234567Z"`)
}

func TestInstance_EndsWhenItIsTerminated(t *testing.T) {
	t.Parallel()
	unwound := false
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (string, error) {
		defer func() { unwound = true }()
		if _, err := durable.CallActivity(ctx, sayHello, "a").Await(); err != nil {
			return "", err
		}
		return durable.CallActivity(ctx, sayHello, "b").Await()
	})
	s.Start(nil)
	// The effects of an event before the termination in the same episode are kept, as if
	// the termination had arrived later.
	wantActions(t, s.Episode(done(0, `"x"`), &history.ExecutionTerminated{Reason: new("enough")}, done(1, `"y"`)),
		`1 task SayHello ["b"]`, "2 Terminated enough")
	if !unwound {
		t.Error("the orchestrator was not unwound")
	}
	wantActions(t, s.Episode(done(1, `"y"`), &history.ExecutionTerminated{Reason: new("again")}))
}

func TestInstance_CanBeTerminatedBeforeItStarts(t *testing.T) {
	t.Parallel()
	s := stage(t, func(*durable.Context, durable.Void) (string, error) { t.Error("the orchestrator ran"); return "", nil })
	wantActions(t, s.Episode(&history.ExecutionTerminated{}, &history.ExecutionStarted{Name: "Main"}), "0 Terminated <nil>")
}

func TestInstance_IgnoresATerminationAfterItHasEnded(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (string, error) { ctx.Sleep(0); return "end", nil })
	s.Start(nil)
	wantActions(t, s.Episode(fired(0), &history.ExecutionTerminated{Reason: new("late")}), `1 Completed "end"`)
}

func TestInstance_BuffersEventsWhileItIsSuspended(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (string, error) {
		a, err := durable.CallActivity(ctx, sayHello, "a").Await()
		if err != nil {
			return "", err
		}
		b, err := durable.Event[string]("B").Wait(ctx).Await()
		return a + b, err
	})
	s.Start(nil)
	wantActions(t, s.Episode(&history.ExecutionSuspended{}))
	wantActions(t, s.Episode(raised("B", `"b"`)))
	s.Evict()
	wantActions(t, s.Episode(&history.ExecutionSuspended{}, done(0, `"a"`))) // suspending twice is the same as once
	wantActions(t, s.Episode(&history.ExecutionResumed{}), `1 Completed "ab"`)
}

func TestInstance_ReleasesAllBufferedEventsInTheirOrder(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) ([]int, error) {
		var got []int
		for range 6 {
			n, err := number.Wait(ctx).Await()
			if err != nil {
				return nil, err
			}
			got = append(got, n)
		}
		return got, nil
	})
	s.Start(nil)
	s.Episode(&history.ExecutionSuspended{}, raised("Number", "1"))
	s.Episode(raised("Number", "2"), raised("Number", "3"))
	s.Evict()
	s.Episode(&history.ExecutionResumed{}, raised("Number", "4"), &history.ExecutionSuspended{}, raised("Number", "5"))
	s.Episode(raised("Number", "6"))
	s.Episode(&history.ExecutionResumed{})
	wantOutput(t, s, "[1,2,3,4,5,6]")
}

func TestInstance_IgnoresAResumeUnlessItIsSuspended(t *testing.T) {
	t.Parallel()
	s := stage(t, helloSequence)
	s.Start(nil)
	wantActions(t, s.Episode(&history.ExecutionResumed{}))
	wantActions(t, s.Episode(done(0, `"a"`)), `1 task SayHello ["Seattle"]`)
}

func TestInstance_SchedulesNothingWhileItIsSuspended(t *testing.T) {
	t.Parallel()
	s := stage(t, helloSequence)
	s.Start(nil)
	// DurableTask.Core/TaskOrchestrationContext.cs, HandleExecutionSuspendedEvent.
	wantActions(t, s.Episode(done(0, `"a"`), &history.ExecutionSuspended{}))
	s.Evict()
	wantActions(t, s.Episode(raised("X", "")))
	wantActions(t, s.Episode(&history.ExecutionResumed{}), `1 task SayHello ["Seattle"]`)
	s.Episode(done(1, `"b"`))
	s.Episode(done(2, `"c"`))
	wantOutput(t, s, `["a","b","c"]`)
}

func TestInstance_CanBeTerminatedWhileItIsSuspended(t *testing.T) {
	t.Parallel()
	s := stage(t, helloSequence)
	s.Start(nil)
	wantActions(t, s.Episode(done(0, `"a"`), &history.ExecutionSuspended{}))
	wantActions(t, s.Episode(&history.ExecutionTerminated{Reason: new("enough")}), "2 Terminated enough")
}

func TestInstance_NowIsTheTimeOfTheResumingEpisode(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (time.Duration, error) {
		_, err := durable.CallActivity(ctx, count, "").Await()
		return ctx.Now().Sub(replaytest.Epoch), err
	})
	s.Start(nil)
	s.Episode(&history.ExecutionSuspended{}, done(0, "0"))
	s.Now = s.Now.Add(time.Hour)
	s.Episode(&history.ExecutionResumed{})
	wantOutput(t, s, "3600000000000")
}
