package simulated_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// messages records the exported messages by type and target.
type messages []string

func (*messages) Instance(context.Context, *provider.InstanceState, []history.Event) error {
	return nil
}
func (*messages) Activity(context.Context, provider.TaskMessage) error { return nil }
func (x *messages) Message(_ context.Context, m provider.TaskMessage) error {
	*x = append(*x, fmt.Sprintf("%s for %s", m.Event.Type(), m.Target.InstanceID))
	return nil
}

// An entity's batch is interrupted by the death of its worker. Its hidden messages are exported
// only if the batch was committed. The consumed request is exported in any case, because it was not
// deleted.
func TestExport_IncludesMessagesOfCommittedEntityBatches(t *testing.T) {
	const request, answer = "EventRaised for @tally@a", "EventRaised for i"
	for fault, want := range map[azsim.Fault][]string{
		azsim.KillBefore: {request},
		azsim.KillAfter:  {request, answer},
	} {
		t.Run(fault.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				account := azsim.New(azsim.Config{Decide: func(r azsim.Request) azsim.Fault {
					if r.Worker == "w1" && isEntityBatch(r) {
						return fault
					}
					return azsim.None
				}})
				defer account.End()
				p := startProcess(t, account, "w1", func() {})
				time.Sleep(3 * time.Second)
				if _, err := durable.Start(t.Context(), p.client, move, 0, durable.InstanceID("i")); err != nil {
					t.Fatal(err)
				}
				<-p.worker.Dead()
				p.stop()
				time.Sleep(3 * time.Minute) // longer than any message is hidden
				var got messages
				hub := openWith(t, "copy", account, account.Worker("copy"))
				if err := hub.Export(t.Context(), &got, provider.ExportOptions{}); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(got, want) {
					t.Errorf("exported %q, want %q", got, want)
				}
			})
		})
	}
}
