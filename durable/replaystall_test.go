package durable_test

import (
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
)

func TestWhyAndVerify_AbandonAnOrchestratorThatDoesNotYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stuck atomic.Bool
		released := make(chan struct{})
		defer close(released)
		r := durable.NewRegistry(durable.Orchestrator("Blocks", func(ctx *durable.Context, in string) (string, error) {
			if stuck.Load() && in == "goroutine" {
				go func() { ctx.NewUUID() }()
			}
			if stuck.Load() {
				<-released
			}
			ctx.Sleep(time.Hour)
			return "", nil
		}))
		h := memhub.New()
		defer run(t, h, r, durable.Config{})()
		c := durable.NewClient(h, r)
		for id, reason := range map[durable.InstanceID]string{
			"goroutine": "waits for a goroutine that made a durable call: durable: NewUUID was called outside of its orchestrator",
			"alone":     "does not yield: it made no durable call for 10s; it must wait for durable tasks only",
		} {
			stuck.Store(false)
			must[durable.InstanceID](t)(c.StartByName(t.Context(), "Blocks", must[[]byte](t)(json.Marshal(id)), id))
			time.Sleep(time.Minute)
			stuck.Store(true)
			events := must[[]history.Event](t)(c.History(t.Context(), id))
			err := r.Verify(events)
			if stall, ok := errors.AsType[*durable.StallError](err); !ok || stall.Name != "Blocks" || stall.InstanceID != id || !strings.Contains(err.Error(), reason) {
				t.Errorf("verify %s: %v, want a StallError with %q", id, err, reason)
			}
			began := time.Now()
			reasons := must[*durable.Diagnosis](t)(c.Why(t.Context(), id)).Reasons
			if len(reasons) != 2 || reasons[0].Kind != durable.ReasonStalled || !strings.Contains(reasons[0].String(), `orchestrator "Blocks" `+reason) ||
				!strings.Contains(reasons[0].Stack, "AbandonAnOrchestrator") || reasons[1].Kind != durable.ReasonTimer {
				t.Errorf("reasons of %s are %v, want a stall and a timer", id, reasons)
			}
			if took := time.Since(began); took != 0 {
				t.Errorf("Why took %v: it ran the code again", took)
			}
		}
	})
}
