package dispatch_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// sleepsIfPatched does the same as sleepsFirst if the change is in effect.
func sleepsIfPatched(x *replay.Execution, in *string) (*string, error) {
	if x.Patched("sleep first") {
		return sleepsFirst(x, in)
	}
	return waitEvent(x, "go").Input, nil
}

// A worker that writes no markers, such as .NET, has run an instance past the question.
func TestPatched_AnInstanceRunPastTheQuestionByDotNetContinues(t *testing.T) {
	for name, before := range map[string]replay.Code{"by new code": sleepsFirst, "by old code": waitForGo} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				stop := b.work(one(before))
				b.start("i", "O", nil)
				time.Sleep(time.Minute)
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				b.work(one(sleepsIfPatched))
				b.send("i", &history.EventRaised{Name: "go", Input: encode("now")})
				b.wantOutput("i", history.Completed, `"now"`)
			})
		})
	}
}

// The first part of a commit has the result of a step, and the second part continues as new. If the worker
// fails to store the second part, the next worker repeats the code after the step. It gets the same answer.
func TestPatched_AnswersTheSameAfterALostContinueAsNew(t *testing.T) {
	for name, c := range map[string]struct {
		step  time.Duration
		fails int // the number of the commit with the decisions
	}{"after the commit of the start": {time.Second, 3}, "with the deferred commit of the start": {0, 2}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				var runs atomic.Int64
				var answers []bool
				n := 0
				b.Inject(memhub.CommitFails, func() bool { n++; return n == c.fails })
				b.work(functions{activities: helloFunctions.activities, orchestrators: map[string]replay.Code{
					"O": func(x *replay.Execution, input *string) (*string, error) {
						if decode[int](input) == 1 {
							return callActivity(x, "Hello", "x")
						}
						step(x, "S", returns(&runs, c.step, "1")).Await()
						answers = append(answers, x.Patched("change"))
						return nil, x.ContinueAsNew(encode(1))
					},
				}})
				b.start("i", "O", 0)
				b.wantOutput("i", history.Completed, `"Hello x!"`)
				if want := []bool{true, true}; !slices.Equal(answers, want) || runs.Load() != 1 {
					t.Errorf("the answers are %v after %d runs of the step, want %v after 1", answers, runs.Load(), want)
				}
			})
		})
	}
}
