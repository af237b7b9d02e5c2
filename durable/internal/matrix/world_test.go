package matrix_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// world is a hub with instances in all states, and the process that uses it.
type world struct {
	*testing.T

	open func() (process, error)
	process
	app  *app
	c    *durable.Client
	stop func() // stops the worker; nil without one
	// blocked returns the functions for which the worker holds instances back.
	blocked func() []durable.BlockedFunction
	ended   chan struct{}
}

func newWorld(t *testing.T, s store) *world {
	return &world{T: t, open: s.create(t), ended: make(chan struct{})}
}

func (w *world) must(what string, err error) {
	w.Helper()
	if err != nil {
		w.Fatalf("%s: %v", what, err)
	}
}

// restart replaces the process by one of the given release, without a worker.
func (w *world) restart(release int) {
	w.Helper()
	w.leave()
	var err error
	w.process, err = w.open()
	w.must("open the hub", err)
	w.app = &app{release, w.ended}
	w.c = durable.NewClient(w.client, w.app.registry())
	w.blocked = func() []durable.BlockedFunction { return nil }
}

// deploy replaces the process by one with a worker of the given release.
func (w *world) deploy(release int) {
	w.Helper()
	w.restart(release)
	ctx, cancel := context.WithCancel(w.Context())
	done := make(chan error)
	worker := durable.NewWorker(w.worker, w.app.registry(), w.app.config())
	w.blocked = worker.Blocked
	go func() { done <- worker.Run(ctx) }()
	w.stop = func() {
		cancel()
		if err := <-done; err != nil {
			w.Errorf("worker: %v", err)
		}
	}
	time.Sleep(time.Minute) // until the worker owns its partitions
}

// leave stops the worker and closes the process.
func (w *world) leave() {
	w.Helper()
	if w.stop != nil {
		w.stop()
		w.stop = nil
	}
	if w.process.close != nil {
		w.must("close the hub", w.process.close())
		w.process.close = nil
	}
}

// setUp brings the instances into their states that need a worker. Release 2 is running then.
func (w *world) setUp() {
	for _, release := range []int{first, wrong} {
		w.deploy(release)
		for n := range 2 {
			for _, s := range states {
				if a := s.acts[phase{release, n}]; a != nil {
					a(w, durable.InstanceID(s.name))
				}
			}
			time.Sleep(time.Minute)
		}
	}
}

// finish deploys the corrected release and lets all instances end: it resumes them and raises the events.
func (w *world) finish() map[string]string {
	w.deploy(corrected)
	for range 2 {
		time.Sleep(12 * time.Minute) // until the messages of instances that were held back are delivered again
		for _, s := range w.list() {
			id := durable.InstanceID(s.Instance.InstanceID)
			if s.Status.IsTerminal() || history.IsEntity(string(id)) {
				continue
			}
			if s.Status == history.Suspended {
				w.must("Resume", w.c.Resume(w.Context(), id, "finish"))
			}
			for _, e := range []durable.Event[string]{next, proceed} {
				if err := e.Raise(w.Context(), w.c, id, "finish"); err != nil && !errors.Is(err, durable.ErrInstanceEnded) {
					w.Errorf("raise %s for %s: %v", e, id, err)
				}
			}
		}
	}
	time.Sleep(time.Minute)
	return w.outcomes()
}

// list returns the states of all instances.
func (w *world) list() (all []*durable.InstanceState) {
	w.Helper()
	for s, err := range w.c.AllInstances(w.Context(), durable.Query{Fetch: durable.Fetch{Input: true, Output: true}}) {
		w.must("AllInstances", err)
		all = append(all, s)
	}
	return all
}

// outcomes returns the outcomes of all instances by state. The outcomes of other instances of the state, and of
// its entity, follow.
func (w *world) outcomes() map[string]string {
	all, kin := map[string]string{}, map[string][]string{}
	for _, s := range w.list() {
		id, isEntity := strings.CutPrefix(s.Instance.InstanceID, "@counter@")
		name, relative, _ := strings.Cut(id, ".")
		outcome := fmt.Sprint(s.Status, " ", text(s.Output))
		switch {
		case strings.HasPrefix(relative, "new."), isEntity && relative == "new":
		case isEntity:
			n, err := durable.ReadEntity(w.Context(), w.c, durable.EntityKey[counter](id))
			if err != nil && !errors.Is(err, durable.ErrEntityNotFound) {
				w.Errorf("entity of %s: %v", id, err)
			}
			kin[name] = append(kin[name], fmt.Sprint("entity: ", n.N))
		case relative != "":
			kin[name] = append(kin[name], relative+": "+outcome)
		default:
			all[name] = outcome
		}
	}
	for _, s := range states {
		slices.Sort(kin[s.name])
		all[s.name] = strings.Join(append([]string{cmp.Or(all[s.name], "absent")}, kin[s.name]...), "; ")
	}
	return all
}

func text(s *string) string {
	if s == nil {
		return "nothing"
	}
	return strings.Trim(*s, `"`)
}
