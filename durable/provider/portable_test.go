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

// heap is a hub that has two instances, an activity and a message to give, and
// counts what it is given. It loses what lost says.
type heap struct {
	lost     provider.Totals
	refuses  error
	received provider.Totals
}

func (h *heap) Export(ctx context.Context, w provider.HubWriter, _ provider.ExportOptions) error {
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

func (h *heap) Import(_ context.Context, fill func(provider.HubWriter) error) error { return fill(h) }

func (h *heap) Totals(context.Context) (provider.Totals, error) {
	t := h.received
	t.Messages -= h.lost.Messages
	return t, nil
}

func (h *heap) Instance(_ context.Context, _ *provider.InstanceState, past []history.Event) error {
	h.received.Instances++
	h.received.Events += len(past)
	return h.refuses
}

func (h *heap) Activity(context.Context, provider.TaskMessage) error {
	h.received.Activities++
	return nil
}

func (h *heap) Message(context.Context, provider.TaskMessage) error {
	h.received.Messages++
	return nil
}

func TestCopyHub_CountsWhatItCopiesAndWhatArrived(t *testing.T) {
	t.Parallel()
	to := &heap{}
	var steps []int
	totals, err := provider.CopyHub(t.Context(), &heap{}, to, provider.ExportOptions{}, func(so provider.Totals) {
		steps = append(steps, so.Instances+so.Activities+so.Messages)
	})
	if err != nil || totals != to.received || totals.Instances != 2 || totals.Activities != 1 || totals.Messages != 1 || totals.Events == 0 {
		t.Errorf("copied %+v, %v; what arrived is %+v", totals, err, to.received)
	}
	if want := []int{1, 2, 3, 4}; !slices.Equal(steps, want) {
		t.Errorf("progress was %v, want %v", steps, want)
	}
}

func TestCopyHub_FailsIfSomethingDidNotArrive(t *testing.T) {
	t.Parallel()
	_, err := provider.CopyHub(t.Context(), &heap{}, &heap{lost: provider.Totals{Messages: 1}}, provider.ExportOptions{}, nil)
	if err == nil || !strings.Contains(err.Error(), "1 activities, 0 messages, but what was copied is") {
		t.Errorf("error %v, want one with both counts", err)
	}
}

func TestCopyHub_EndsWithTheTargetsError(t *testing.T) {
	t.Parallel()
	full := errors.New("the disk is full")
	if _, err := provider.CopyHub(t.Context(), &heap{}, &heap{refuses: full}, provider.ExportOptions{}, nil); !errors.Is(err, full) {
		t.Errorf("error %v, want %v", err, full)
	}
}
