package provider_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// fake is a hub that exports two instances, an activity and a message. It counts its imports
// and omits the counts in lost.
type fake struct {
	lost     provider.Totals
	refuses  error
	received provider.Totals
}

func (h *fake) Export(ctx context.Context, w provider.HubWriter, _ provider.ExportOptions) error {
	for _, id := range []string{"a", "b"} {
		if err := w.Instance(ctx, &provider.InstanceState{Instance: instance(id)}, new(script).episode(started(id)).events); err != nil {
			return err
		}
	}
	if err := w.Activity(ctx, provider.TaskMessage{Event: task(0), Target: instance("a")}); err != nil {
		return err
	}
	return w.Message(ctx, provider.TaskMessage{Event: fired(0), Target: instance("a")})
}

func (h *fake) Import(_ context.Context, fill func(provider.HubWriter) error) error { return fill(h) }

func (h *fake) Totals(context.Context) (provider.Totals, error) {
	t := h.received
	t.Messages -= h.lost.Messages
	return t, nil
}

func (h *fake) Instance(_ context.Context, _ *provider.InstanceState, past []history.Event) error {
	h.received.Instances++
	h.received.Events += len(past)
	return h.refuses
}

func (h *fake) Activity(context.Context, provider.TaskMessage) error {
	h.received.Activities++
	return nil
}

func (h *fake) Message(context.Context, provider.TaskMessage) error {
	h.received.Messages++
	return nil
}

func TestCopyHub_ReturnsTheTotals(t *testing.T) {
	t.Parallel()
	to := &fake{}
	var steps []int
	totals, err := provider.CopyHub(t.Context(), &fake{}, to, provider.ExportOptions{}, func(so provider.Totals) {
		steps = append(steps, so.Instances+so.Activities+so.Messages)
	})
	if err != nil || totals != to.received || totals.Instances != 2 || totals.Activities != 1 || totals.Messages != 1 || totals.Events == 0 {
		t.Errorf("copied %+v, %v; the target received %+v", totals, err, to.received)
	}
	if want := []int{1, 2, 3, 4}; !slices.Equal(steps, want) {
		t.Errorf("progress was %v, want %v", steps, want)
	}
}

func TestCopyHub_AcceptsMessagesThatTheTargetAdds(t *testing.T) {
	t.Parallel()
	totals, err := provider.CopyHub(t.Context(), &fake{}, &fake{lost: provider.Totals{Messages: -1}}, provider.ExportOptions{}, nil)
	if err != nil || totals.Messages != 1 {
		t.Errorf("copied %+v, %v; want 1 message", totals, err)
	}
}

func TestCopyHub_FailsIfTheTargetMissesAMessage(t *testing.T) {
	t.Parallel()
	_, err := provider.CopyHub(t.Context(), &fake{}, &fake{lost: provider.Totals{Messages: 1}}, provider.ExportOptions{}, nil)
	if err == nil || !strings.Contains(err.Error(), "1 activities, 0 messages, but ") {
		t.Errorf("error %v, want an error with both counts ", err)
	}
}

func TestCopyHub_ReturnsTheTargetsError(t *testing.T) {
	t.Parallel()
	full := errors.New("the disk is full")
	if _, err := provider.CopyHub(t.Context(), &fake{}, &fake{refuses: full}, provider.ExportOptions{}, nil); !errors.Is(err, full) {
		t.Errorf("error %v, want %v", err, full)
	}
}
