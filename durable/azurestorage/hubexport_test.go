package azurestorage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
)

// exported records a summary of what an export writes.
type exported []string

func (x *exported) Instance(_ context.Context, s *provider.InstanceState, past []history.Event) error {
	*x = append(*x, fmt.Sprintf("%s %s %s, %d events", s.Instance.InstanceID, s.Instance.ExecutionID, s.Status, len(past)))
	return nil
}

func (x *exported) Activity(_ context.Context, m provider.TaskMessage) error {
	*x = append(*x, fmt.Sprintf("activity %d of %s", m.Event.Head().EventID, m.Target.InstanceID))
	return nil
}

func (x *exported) Message(_ context.Context, m provider.TaskMessage) error {
	*x = append(*x, fmt.Sprintf("%s for %s", m.Event.Type(), m.Target.InstanceID))
	return nil
}

// abandoned returns a hub without a worker. Its instance "a" waits for an activity that is in the
// queue.
func abandoned(t *testing.T) *TaskHub {
	t.Helper()
	cfg := testConfig(t)
	h := openHub(t, cfg)
	stop := runHub(t, h)
	mustStart(t, h, "a", "e1", `1`)
	commitActivity(t, mustNext(t, h), 0, `["x"]`)
	stop()
	h = openHub(t, cfg)
	h.cfg.ControlQueueVisibilityTimeout, h.cfg.WorkItemQueueVisibilityTimeout = 3*time.Second, 3*time.Second
	return h
}

func TestExport_WaitsForTheMessagesOfADeadWorker(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h := abandoned(t)
		h.cfg.WorkItemQueueVisibilityTimeout = time.Minute
		var hidden []store.Message
		patience.Until(t, "the activity is in its queue", func() bool {
			var err error
			hidden, err = h.workItems.Receive(t.Context(), 1, 2*time.Second) // this worker then dies
			return err == nil && len(hidden) == 1
		})
		var got exported
		var notices []string
		err := h.Export(t.Context(), &got, provider.ExportOptions{Notice: func(s string) { notices = append(notices, s) }})
		if err != nil {
			t.Fatal(err)
		}
		want := exported{"a e1 Running, 4 events", "activity 0 of a"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("exported (-want +got):\n%s", diff)
		}
		if len(notices) != 1 {
			t.Errorf("notices: %q, want one", notices)
		}
		// The activity is visible again, so the export removed nothing.
		if again, err := h.workItems.Receive(t.Context(), 1, time.Second); err != nil || len(again) != 1 {
			t.Errorf("after the export there are %d visible activities (%v), want 1", len(again), err)
		}
	})
}

func TestExport_FailsIfARequiredMessageIsMissing(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h := abandoned(t)
		patience.Until(t, "the activity is in its queue", func() bool {
			lost, err := h.workItems.Receive(t.Context(), 1, 2*time.Minute) // longer than the export waits
			return err == nil && len(lost) == 1
		})
		var got exported
		err := h.Export(t.Context(), &got, provider.ExportOptions{IgnoreHidden: true})
		hidden, ok := errors.AsType[*HiddenError](err)
		if !ok || hidden.Missing != 1 {
			t.Errorf("error %v, want a *HiddenError with one message missing", err)
		}
	})
}

func TestExport_OmitsHiddenMessagesOnlyIfConfigured(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h := abandoned(t)
		event := provider.TaskMessage{
			Target: history.OrchestrationInstance{InstanceID: "a"}, Event: &history.EventRaised{Header: header(history.NoEventID), Name: "E"},
		}
		text, err := wire.EncodeEnvelope(&wire.Envelope{Message: &event, Sender: &history.OrchestrationInstance{}})
		if err == nil {
			_, err = h.controlQueues[0].Client.EnqueueMessage(t.Context(), string(text), &azqueue.EnqueueMessageOptions{VisibilityTimeout: new(int32(3600))})
		}
		if err != nil {
			t.Fatal(err)
		}
		var got exported
		hidden, ok := errors.AsType[*HiddenError](h.Export(t.Context(), &got, provider.ExportOptions{}))
		if !ok || hidden.Hidden != 1 || hidden.Missing != 0 {
			t.Errorf("error %+v, want a *HiddenError with one message hidden", hidden)
		}
		got = nil
		var notices []string
		err = h.Export(t.Context(), &got, provider.ExportOptions{IgnoreHidden: true, Notice: func(s string) { notices = append(notices, s) }})
		if err != nil {
			t.Fatal(err)
		}
		if want := (exported{"a e1 Running, 4 events", "activity 0 of a"}); !slices.Equal(got, want) || len(notices) != 2 {
			t.Errorf("exported %q with notices %q, want %q and one about the hidden message", got, notices, want)
		}
	})
}

// A worker died before it wrote the row of an instance that had started and continued as new. The
// start message still exists. It must not replace the later generation.
func TestExport_OmitsTheStartOfAnEarlierGeneration(t *testing.T) {
	t.Parallel()
	h := openHub(t, testConfig(t))
	mustStart(t, h, "a", "e1", `1`)
	start := startMessage("a", "e2", `2`)
	rows := mustRows(t, h, start.Target, 0, episode([]provider.TaskMessage{start}))
	if _, _, err := h.instances.Histories.Append(t.Context(), start.Target, rows, "", map[string]string{wire.FirstExecutionColumn: "e1"}); err != nil {
		t.Fatal(err)
	}
	var got exported
	if err := h.Export(t.Context(), &got, provider.ExportOptions{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(exported{"a e2 Running, 3 events"}, got); diff != "" {
		t.Errorf("exported (-want +got):\n%s", diff)
	}
}
