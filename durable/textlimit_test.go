package durable_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
)

var longSizes = []int{durable.MaxNameLength + 1, 40 << 10, 70 << 10, 2 << 20}

func longTags(size int) int { return max(size, durable.MaxTagsLength+1) }

func tooLong(t *testing.T, what string, err error) {
	t.Helper()
	if long, ok := errors.AsType[*durable.TooLongError](err); !ok || long.What != what || len(err.Error()) > 300 {
		t.Errorf("error %.300v, want a *TooLongError about the %s", err, what)
	}
}

func TestStart_RejectsTextsThatAreTooLong(t *testing.T) {
	t.Parallel()
	c := durable.NewClient(memhub.New(), nil)
	start := func(name string, opts ...durable.StartOption) error {
		_, err := c.StartByName(context.Background(), name, nil, opts...)
		return err
	}
	for _, size := range longSizes {
		long := strings.Repeat("x", size)
		tooLong(t, "name", start(long))
		tooLong(t, "version", start("A", durable.Version(long)))
		tags := strings.Repeat("x", longTags(size))
		tooLong(t, "tags", start("A", durable.Tags{"k": tags}))
		tooLong(t, "tags", start("A", durable.Tags{tags: ""}))
		if err := start("A", durable.InstanceID(long)); !errors.As(err, new(*durable.InstanceIDError)) {
			t.Errorf("error %.300v, want an *InstanceIDError", err)
		}
	}
	if err := start(long(durable.MaxNameLength), durable.Version(long(durable.MaxNameLength)), durable.Tags{"": long(durable.MaxTagsLength)}); err != nil {
		t.Errorf("texts of maximum length: %v", err)
	}
}

func long(n int) string { return strings.Repeat("x", n) }

// Texts that are too long must fail in the orchestrator's episode. Otherwise the hub
// would reject the checkpoint and retry it forever.
func TestOrchestrator_RejectsTextsThatAreTooLong(t *testing.T) {
	main := func(ctx *durable.Context, _ durable.Void) (string, error) {
		var problems []string
		note := func(what string, err error) {
			if e, ok := errors.AsType[*durable.TooLongError](err); !ok || e.What != what {
				problems = append(problems, what)
			}
		}
		for _, size := range longSizes {
			child := func(name string, opts ...durable.SubOrchestrationOption) error {
				_, err := durable.OrchestratorName[durable.Void, durable.Void](name).Call(ctx, durable.Void{}, opts...).Await()
				return err
			}
			note("name", child(long(size)))
			note("version", child("A", durable.Version(long(size))))
			note("tags", child("A", durable.Tags{"k": long(longTags(size))}))
			_, err := durable.ContinueAsNew(ctx, again, durable.Void{}, durable.Version(long(size)))
			note("version", err)
			for _, id := range []durable.InstanceID{durable.InstanceID(long(size)), "a/b"} {
				if !errors.As(durable.Event[int]("E").RaiseFrom(ctx, id, 1), new(*durable.InstanceIDError)) || !errors.As(child("A", id), new(*durable.InstanceIDError)) {
					problems = append(problems, "ID")
				}
			}
		}
		return strings.Join(problems, ", "), nil
	}
	r := durable.NewRegistry(durable.Orchestrator("Main", main))
	runMain(t, r, main, func(t *testing.T, _ *memhub.Hub, _ *durable.Client, i *durable.Instance[string]) {
		if out, err := i.Wait(t.Context()); err != nil || out != "" {
			t.Errorf("not rejected: %q, %v", out, err)
		}
	})
}

// starting is an entity that starts an orchestration.
type starting struct{}

func (*starting) Start(ctx *durable.EntityContext, in [2]string) (durable.InstanceID, error) {
	return durable.OrchestratorName[durable.Void, durable.Void](in[0]).StartFrom(ctx, durable.Void{}, durable.Version(in[1]))
}

func TestEntity_RejectsTextsThatAreTooLong(t *testing.T) {
	t.Parallel()
	e := durable.Entity("Starting", durable.Op("start", (*starting).Start))
	for what, in := range map[string]string{"name": `["` + long(40<<10) + `",""]`, "version": `["A","` + long(40<<10) + `"]`} {
		r := perform(t, e, entity.Operation{Name: "start", Input: &in})
		if r.Failure == nil || !strings.Contains(r.Failure.ErrorMessage, "The "+what+" of an orchestrator must not exceed") || len(r.Failure.ErrorMessage) > 300 {
			t.Errorf("%s: failure %.300v", what, r.Failure)
		}
	}
}

func again(*durable.Context, durable.Void) (string, error) { return "", nil }
