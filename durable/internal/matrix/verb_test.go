package matrix_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// verb is an operation of a client on an instance. It returns what it observed.
type verb struct {
	name string
	do   func(ctx context.Context, w *world, id durable.InstanceID) string
}

// readers are the verbs that change nothing.
var readers = []verb{{"get", get}, {"list", list}, {"history", readHistory}, {"why", why}, {"verify", verify}, {"blocked", blocked}}

// writers are the verbs that change an instance.
var writers = []verb{
	{"raise", writer(func(ctx context.Context, c *durable.Client, id durable.InstanceID) error {
		return proceed.Raise(ctx, c, id, "verb")
	})},
	{"suspend", writer(func(ctx context.Context, c *durable.Client, id durable.InstanceID) error {
		return c.Suspend(ctx, id, "verb")
	})},
	{"resume", writer(func(ctx context.Context, c *durable.Client, id durable.InstanceID) error {
		return c.Resume(ctx, id, "verb")
	})},
	{"terminate", writer(func(ctx context.Context, c *durable.Client, id durable.InstanceID) error {
		return c.Terminate(ctx, id, "verb")
	})},
	{"terminate-all", writer(func(ctx context.Context, c *durable.Client, id durable.InstanceID) error {
		return c.Terminate(ctx, id, "verb", durable.Recursive)
	})},
	{"rewind", writer(func(ctx context.Context, c *durable.Client, id durable.InstanceID) error {
		return c.Rewind(ctx, id, "verb")
	})},
	{"restart", writer(func(ctx context.Context, c *durable.Client, id durable.InstanceID) error {
		_, err := c.Restart(ctx, id, id)
		return err
	})},
	{"restart-as", writer(func(ctx context.Context, c *durable.Client, id durable.InstanceID) error {
		_, err := c.Restart(ctx, id, id+".new")
		return err
	})},
	{"purge", purger()},
	{"purge-all", purger(durable.Recursive)},
}

// writer returns a verb's function, which returns the class of the error.
func writer(do func(ctx context.Context, c *durable.Client, id durable.InstanceID) error) func(context.Context, *world, durable.InstanceID) string {
	return func(ctx context.Context, w *world, id durable.InstanceID) string { return class(do(ctx, w.c, id)) }
}

func purger(opts ...durable.PurgeOption) func(context.Context, *world, durable.InstanceID) string {
	return func(ctx context.Context, w *world, id durable.InstanceID) string {
		r, err := w.c.Purge(ctx, id, opts...)
		if err == nil {
			return fmt.Sprint("purged ", r.Instances)
		}
		return class(err)
	}
}

// class returns the class of an error, with the status that it names.
func class(err error) string {
	state, isState := errors.AsType[*durable.InstanceStateError](err)
	exists, isExists := errors.AsType[*durable.InstanceExistsError](err)
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, durable.ErrInstanceNotFound):
		return "not found"
	case errors.Is(err, context.DeadlineExceeded):
		return "waits"
	case isState:
		return fmt.Sprint("refused: ", state.Status)
	case isExists:
		return fmt.Sprint("exists: ", exists.Status)
	}
	return err.Error()
}

func get(ctx context.Context, w *world, id durable.InstanceID) string {
	s, err := w.c.Status(ctx, id, durable.Fetch{Input: true})
	switch {
	case errors.Is(err, durable.ErrInstanceNotFound):
		return "absent"
	case err != nil:
		return err.Error()
	case s.CreatedAt.IsZero() || s.FirstCreatedAt.IsZero() || s.LastUpdatedAt.Before(s.FirstCreatedAt):
		return fmt.Sprintf("created at %v, %v, updated at %v", s.FirstCreatedAt, s.CreatedAt, s.LastUpdatedAt)
	case s.Status.IsTerminal() && s.CompletedAt.Before(s.FirstCreatedAt):
		return fmt.Sprintf("%v, completed at %v", s.Status, s.CompletedAt)
	}
	return fmt.Sprintf("%v %s(%s)", s.Status, s.Name, text(s.Input))
}

// list compares the lists of all instances and of those with the status with the instance's own state.
func list(ctx context.Context, w *world, id durable.InstanceID) string {
	s, err := w.c.Status(ctx, id, durable.Fetch{Input: true, Output: true})
	if err != nil && !errors.Is(err, durable.ErrInstanceNotFound) {
		return err.Error()
	}
	number := func(q durable.Query) (n int) {
		q.Fetch = durable.Fetch{Input: true, Output: true}
		for listed, err := range w.c.AllInstances(ctx, q) {
			w.must("AllInstances", err)
			if listed.Instance.InstanceID == string(id) && reflect.DeepEqual(s, listed) {
				n++
			}
		}
		return n
	}
	if s == nil {
		s = new(durable.InstanceState)
	}
	return fmt.Sprint(number(durable.Query{}), " of all, ", number(durable.Query{Statuses: []durable.RuntimeStatus{s.Status}, IDPrefix: string(id)}), " by status")
}

// readHistory returns the types of events, without those that only mark episodes.
func readHistory(ctx context.Context, w *world, id durable.InstanceID) string {
	past, err := w.c.History(ctx, id)
	if err != nil {
		return err.Error()
	}
	exported, err := durable.MarshalHistory(past)
	w.must("MarshalHistory", err)
	imported, err := durable.UnmarshalHistory(exported)
	w.must("UnmarshalHistory", err)
	if !reflect.DeepEqual(past, imported) && len(past) > 0 {
		return "the exported history differs: " + string(exported)
	}
	var types []string
	for _, e := range past {
		if t := e.Type(); t != history.TypeOrchestratorStarted && t != history.TypeOrchestratorCompleted {
			types = append(types, t.String())
		}
	}
	return strings.Join(types, " ")
}

func why(ctx context.Context, w *world, id durable.InstanceID) string {
	d, err := w.c.Why(ctx, id)
	if err != nil {
		return class(err)
	}
	var all []string
	for _, r := range d.Reasons {
		reason := strings.TrimSpace(string(r.Kind) + " " + r.Name)
		if r.IsOutcomeStored {
			reason += " stored"
		}
		if r.IsNotAwaited {
			reason += " not awaited"
		}
		all = append(all, reason)
	}
	return strings.Join(all, ", ")
}

// verify compares the history with the code of the wrong release.
func verify(ctx context.Context, w *world, id durable.InstanceID) string {
	past, err := w.c.History(ctx, id)
	w.must("History", err)
	err = w.app.registry().Verify(past)
	switch {
	case errors.Is(err, durable.ErrNotRegistered):
		return "not registered"
	case errors.As(err, new(*durable.HistoryMismatchError)):
		return "differs"
	case err != nil:
		return err.Error()
	}
	return "matches"
}

// blocked returns why the worker holds the instance back.
func blocked(_ context.Context, w *world, id durable.InstanceID) string {
	var all []string
	for _, f := range w.blocked() {
		if !slices.Contains(f.Instances, string(id)) {
			continue
		}
		reason := "unknown"
		switch {
		case f.Differs:
			reason = "differs"
		case f.Stalled:
			reason = "stalled"
		case f.Refusal != "":
			reason = "refused"
		}
		all = append(all, f.Kind+" "+reason)
	}
	return cmp.Or(strings.Join(all, ", "), "none")
}
