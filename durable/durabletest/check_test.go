package durabletest_test

import (
	"context"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest"
)

// The test fails if a replay differs from the first run in any decision.
func TestRun_FailsIfAReplayDiffers(t *testing.T) {
	t.Parallel()
	type orchestrator = func(*durable.Context, durable.Void) (int, error)
	call := func(ctx *durable.Context, f string) (int64, error) {
		return durable.CallActivity(ctx, CopyFile, f).Await()
	}
	for _, c := range []struct {
		name string
		make func() orchestrator // each orchestrator has its own run counter
		want []string
	}{
		{
			name: "another activity in the first episode",
			make: func() orchestrator {
				runs := 0
				return func(ctx *durable.Context, _ durable.Void) (int, error) {
					if runs++; runs > 1 {
						_, err := durable.CallActivity(ctx, ListFiles, "x").Await()
						return 0, err
					}
					_, err := call(ctx, "x")
					return 0, err
				}
			},
			want: []string{"in episode 0", "decision 0", `first run: activity CopyFile with input ["x"]`, `replay:    activity ListFiles with input ["x"]`},
		},
		{
			name: "an activity that differs from the history",
			make: func() orchestrator {
				runs := 0
				return func(ctx *durable.Context, _ durable.Void) (int, error) {
					if runs++; runs == 3 { // the replay after the second episode
						_, err := durable.CallActivity(ctx, ListFiles, "x").Await()
						return 0, err
					}
					if _, err := call(ctx, "x"); err != nil {
						return 0, err
					}
					_, err := call(ctx, "y")
					return 0, err
				}
			},
			want: []string{
				"in episode 1", "decision 0", "history has:  an activity task named 'CopyFile'", "the code did: an activity task named 'ListFiles'",
				"Non-Deterministic workflow detected",
			},
		},
		{
			name: "another input",
			make: func() orchestrator {
				runs := 0
				return func(ctx *durable.Context, _ durable.Void) (int, error) {
					runs++
					_, err := call(ctx, "now"+time.Duration(runs).String())
					return 0, err
				}
			},
			want: []string{"decision 0", `["now1ns"]`, `["now2ns"]`},
		},
		{
			name: "another result",
			make: func() orchestrator {
				runs := 0
				return func(*durable.Context, durable.Void) (int, error) { runs++; return runs, nil }
			},
			want: []string{"decision 0", "first run: the end: Completed with 1", "replay:    the end: Completed with 2"},
		},
		{
			name: "another due time of a timer",
			make: func() orchestrator {
				runs := 0
				return func(ctx *durable.Context, _ durable.Void) (int, error) {
					runs++
					ctx.Sleep(time.Duration(runs) * time.Hour)
					return 0, nil
				}
			},
			want: []string{"first run: timer until 2000-01-01T01:00:00Z", "replay:    timer until 2000-01-01T02:00:00Z"},
		},
		{
			name: "a missing activity",
			make: func() orchestrator {
				runs := 0
				return func(ctx *durable.Context, _ durable.Void) (int, error) {
					if runs++; runs == 1 {
						durable.CallActivity(ctx, CopyFile, "x")
					}
					_, err := Approval.Wait(ctx).Await()
					return 0, err
				}
			},
			want: []string{`first run: activity CopyFile with input ["x"]`, "replay:    nothing"},
		},
		{
			name: "another custom status",
			make: func() orchestrator {
				runs := 0
				return func(ctx *durable.Context, _ durable.Void) (int, error) {
					runs++
					ctx.SetCustomStatus(runs)
					_, err := Approval.Wait(ctx).Await()
					return 0, err
				}
			},
			want: []string{"custom status", "first run: 1", "replay:    2"},
		},
		{
			name: "in a later generation",
			make: func() orchestrator {
				runs := 0
				var self orchestrator
				self = func(ctx *durable.Context, _ durable.Void) (int, error) {
					if runs++; runs <= 2 {
						return durable.ContinueAsNew(ctx, self, durable.Void{})
					}
					return runs, nil
				}
				return self
			},
			want: []string{"the end: Completed with 3", "the end: Completed with 4"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := fails(t, func(t durabletest.TB) {
				o := c.make()
				hub := durabletest.New(t, append([]*durable.Registration{durable.Orchestrator("Fickle", o)}, functions...)...)
				_, _ = durabletest.Run(hub, o, durable.Void{})
			})
			contains(t, got, `orchestrator "Fickle" is not deterministic`, `instance "instance-1"`)
			contains(t, got, c.want...)
		})
	}
}

// Only decisions are compared. An orchestrator may have effects on the test's variables, and may
// panic with addresses in its stack.
func TestRun_PassesIfReplaysMakeTheSameDecisions(t *testing.T) {
	t.Parallel()
	calls := 0
	o := func(ctx *durable.Context, _ durable.Void) (int, error) {
		calls++
		if _, err := durable.CallActivity(ctx, CopyFile, "x").Await(); err != nil {
			return 0, err
		}
		panic("x")
	}
	hub := durabletest.New(t, append([]*durable.Registration{durable.Orchestrator("O", o)}, functions...)...)
	durabletest.Stub(hub, CopyFile, func(context.Context, string) (int64, error) { return 0, nil })
	if _, err := durabletest.Run(hub, o, durable.Void{}); err == nil {
		t.Error("no error")
	}
	if want := 3; calls != want { // the first run, and a replay after each of two episodes
		t.Errorf("ran %d times, want %d", calls, want)
	}
}
