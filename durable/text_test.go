package durable_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// An invalid text, and the text that a storage might replace it with.
const replaced, invalid = "a\ufffd", "a\xff"

func TestClient_RejectsInvalidUTF8(t *testing.T) {
	hub := memhub.New()
	c := durable.NewClient(hub, durable.NewRegistry())
	ctx := t.Context()
	if _, err := c.StartByName(ctx, "Waits", nil, durable.InstanceID(replaced)); err != nil {
		t.Fatal(err)
	}
	before := hub.Pending()
	const id = durable.InstanceID(replaced)
	bad, raw := durable.InstanceID(invalid), json.RawMessage(`"`+invalid+`"`)
	entity := durable.EntityID{Name: "counter", Key: "k"}
	start := func(name string, input json.RawMessage, opts ...durable.StartOption) error {
		_, err := c.StartByName(ctx, name, input, opts...)
		return err
	}
	second := func(_ any, err error) error { return err }
	for what, err := range map[string]error{
		"input of a start":         start("Waits", raw),
		"name of a start":          start(invalid, nil),
		"version of a start":       start("Waits", nil, durable.Version(invalid)),
		"tag of a start":           start("Waits", nil, durable.Tags{"t": invalid}),
		"name of a tag":            start("Waits", nil, durable.Tags{invalid: ""}),
		"ID of a start":            start("Waits", nil, bad),
		"event's name":             c.RaiseEvent(ctx, id, invalid, nil),
		"event's payload":          c.RaiseEvent(ctx, id, "E", raw),
		"ID for an event":          c.RaiseEvent(ctx, bad, "E", nil),
		"reason to terminate":      c.Terminate(ctx, id, invalid),
		"ID to terminate":          c.Terminate(ctx, bad, ""),
		"reason to suspend":        c.Suspend(ctx, id, invalid),
		"ID to suspend":            c.Suspend(ctx, bad, ""),
		"reason to resume":         c.Resume(ctx, id, invalid),
		"ID to rewind":             c.Rewind(ctx, bad, ""),
		"ID to restart":            second(c.Restart(ctx, bad)),
		"ID to purge":              second(c.Purge(ctx, bad)),
		"prefix to purge":          second(c.PurgeMany(ctx, durable.PurgeFilter{IDPrefix: invalid})),
		"name to purge":            second(c.PurgeMany(ctx, durable.PurgeFilter{Name: invalid})),
		"ID to read":               second(c.Status(ctx, bad, durable.Fetch{})),
		"ID of a history":          second(c.History(ctx, bad)),
		"prefix of a list":         second(c.ListInstances(ctx, durable.Query{IDPrefix: invalid})),
		"name of a list":           second(c.ListInstances(ctx, durable.Query{Name: invalid})),
		"prefix of entities":       second(c.ListEntities(ctx, durable.EntityQuery{Name: "counter", KeyPrefix: invalid})),
		"name of entities":         second(c.ListEntities(ctx, durable.EntityQuery{Name: invalid})),
		"input of an operation":    c.SignalEntity(ctx, entity, "add", raw),
		"name of an operation":     c.SignalEntity(ctx, entity, invalid, nil),
		"key of an entity":         c.SignalEntity(ctx, durable.EntityID{Name: "counter", Key: invalid}, "add", nil),
		"key of an entity to read": second(c.Entity(ctx, durable.EntityID{Name: "counter", Key: invalid})),
	} {
		_, isText := errors.AsType[*durable.TextError](err)
		_, isID := errors.AsType[*durable.InstanceIDError](err)
		if !isText && !isID {
			t.Errorf("%s: %v, want a *TextError or *InstanceIDError", what, err)
		}
	}
	if n := hub.Pending(); n != before {
		t.Errorf("%d messages were sent", n-before)
	}
}

func TestClient_RejectsInvalidUTF8InTheReasonOfARewind(t *testing.T) {
	hub := memhub.New()
	c := durable.NewClient(hub, durable.NewRegistry())
	if _, err := c.StartByName(t.Context(), "Fails", nil, durable.InstanceID("f")); err != nil {
		t.Fatal(err)
	}
	failed := failedHub{hub}
	err := durable.NewClient(failed, durable.NewRegistry()).Rewind(t.Context(), "f", invalid)
	if _, ok := errors.AsType[*durable.TextError](err); !ok {
		t.Errorf("%v, want a *TextError", err)
	}
}

// After the client has read the status, another client rewinds or restarts the
// instance.
func TestRewind_ReturnsTheStatusAfterALostRace(t *testing.T) {
	hub := memhub.New()
	c := durable.NewClient(hub, durable.NewRegistry())
	if _, err := c.StartByName(t.Context(), "Fails", nil, durable.InstanceID("f")); err != nil {
		t.Fatal(err)
	}
	err := durable.NewClient(&lateHub{Hub: hub}, durable.NewRegistry()).Rewind(t.Context(), "f", "")
	if state, ok := errors.AsType[*durable.InstanceStateError](err); !ok || state.Status != history.Pending {
		t.Errorf("error is %v, want an *InstanceStateError with status Pending", err)
	}
}

// lateHub reports Failed for the first query of an instance.
type lateHub struct {
	*memhub.Hub
	asked int
}

func (h *lateHub) Instance(ctx context.Context, id string, fetch provider.Fetch) (*provider.InstanceState, error) {
	if h.asked++; h.asked == 1 {
		return failedHub{h.Hub}.Instance(ctx, id, fetch)
	}
	return h.Hub.Instance(ctx, id, fetch)
}

// failedHub reports that all instances have failed.
type failedHub struct{ *memhub.Hub }

func (h failedHub) Instance(ctx context.Context, id string, fetch provider.Fetch) (*provider.InstanceState, error) {
	s, err := h.Hub.Instance(ctx, id, fetch)
	if err == nil {
		s.Status = history.Failed
	}
	return s, err
}

// A worker cannot store an invalid text either. An error has the text that a replay reads.
func TestStep_CannotReturnInvalidUTF8(t *testing.T) {
	raw := json.RawMessage(`"` + invalid + `"`)
	got, err := runStep(t, func(ctx *durable.Context, _ durable.Void) (all []string, err error) {
		add := func(err error) { all = append(all, strings.ToUpper(fmt.Sprint(err))) }
		_, err = durable.Step(ctx, "raw", func(context.Context) (json.RawMessage, error) { return raw, nil }).Await()
		add(err)
		_, err = durable.Step(ctx, "nested", func(context.Context) (map[string]any, error) { return map[string]any{"a": raw}, nil }).Await()
		add(err)
		_, err = durable.Step(ctx, "fails", func(context.Context) (int, error) { return 0, errors.New(invalid) }).Await()
		if failure, ok := errors.AsType[*durable.TaskFailedError](err); !ok || failure.FailureDetails().ErrorMessage != replaced {
			t.Errorf("the step failed with %q", err)
		}
		_, err = durable.Step(ctx, "panics", func(context.Context) (int, error) { panic(invalid) }).Await()
		if failure, ok := errors.AsType[*durable.TaskFailedError](err); !ok || failure.FailureDetails().ErrorMessage != "panic: "+replaced {
			t.Errorf("the step failed with %q", err)
		}
		return all, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range got {
		if !strings.Contains(text, "IS NOT VALID UTF-8") {
			t.Errorf("a step with an invalid text failed with %s", text)
		}
	}
}
