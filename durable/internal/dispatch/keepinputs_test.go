package dispatch_test

import (
	"fmt"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// DurableTask.Core/TaskOrchestrationDispatcher.cs, IncludeParameters. The setting in host.json
// is storeInputsInOrchestrationHistory (WebJobs.Extensions.DurableTask/DurableTaskExtension.cs,
// StartTaskHubWorkerIfNotStartedAsync).
func TestStoreInputs_StoresInputsInTheCallersHistory(t *testing.T) {
	for keep, want := range map[bool]string{true: `"Oslo" 7`, false: "<nil> <nil>"} {
		bubble(t, func(b *bench) {
			fns := functions{
				activities: helloFunctions.activities,
				orchestrators: map[string]replay.Code{
					"Echo": func(_ *replay.Execution, input *string) (*string, error) { return input, nil },
					"O": func(x *replay.Execution, _ *string) (*string, error) {
						hello, err := callActivity(x, "Hello", "Oslo")
						if err != nil {
							return nil, err
						}
						f := new(replay.Future)
						x.CreateSubOrchestration(f, "Echo", "child", encode(7))
						echo, err := result(f)
						return encode(decode[string](hello) + fmt.Sprint(decode[int](echo))), err
					},
				},
			}
			b.work(fns, func(c *dispatch.Config) { c.StoreInputs = keep })
			b.start("i", "O", nil)
			b.wantOutput("i", history.Completed, `"Hello Oslo!7"`) // the callees receive the inputs in both cases
			text := func(input *string) string {
				if input == nil {
					return "<nil>"
				}
				return *input
			}
			got := ""
			for _, e := range b.events("i") {
				switch e := e.(type) {
				case *history.TaskScheduled:
					got += text(e.Input)
				case *history.SubOrchestrationInstanceCreated:
					got += " " + text(e.Input)
				}
			}
			if got != want {
				t.Errorf("StoreInputs is %v: the history has the inputs %s, want %s", keep, got, want)
			}
		})
	}
}
