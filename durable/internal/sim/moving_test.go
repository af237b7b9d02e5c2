package sim_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/sim"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// moving is a hub that is repeatedly copied to another provider.
type moving struct {
	sim.Platform // the current platform

	open func(n int) (sim.Platform, error) // opens the n-th platform, which is empty
	n    int
	// turn is held while a client uses the hub or the hub is moved.
	turn  chan struct{}
	exact bool // the plan has no faults, so that the copy must equal the source
}

// kinds is the number of kinds of hubs.
const kinds = 3

func newMoving(plan *sim.Plan, dir string, logger *slog.Logger) (*moving, error) {
	m := &moving{turn: make(chan struct{}, 1), exact: plan.Faults == 0 && plan.Repeats == 0 && len(plan.Disturbances) == 0}
	first, step := int(plan.Seed/2%3), 1+int(plan.Seed/6%2)
	m.open = func(n int) (sim.Platform, error) {
		switch (first + n*step) % kinds {
		case 0:
			return newAzure(plan, nil, logger)
		case 1:
			return newLogs(plan, nil, logger)
		}
		return newLocal(plan, filepath.Join(dir, fmt.Sprint(n)), logger)
	}
	var err error
	m.Platform, err = m.open(0)
	return m, err
}

// portable returns the hub of a platform.
func portable(p sim.Platform) provider.Portable {
	switch p := p.(type) {
	case *local:
		return p.hub
	case *logs:
		return p.client
	}
	return p.(*azure).client
}

// Move implements [sim.Mover]. It retries while messages that a dead worker has hidden are still invisible.
func (m *moving) Move(ctx context.Context) []string {
	m.turn <- struct{}{}
	defer func() { <-m.turn }()
	m.Settle()
	before := contents(ctx, m.Platform.Client()) // creates the hub
	m.n++
	to, err := m.open(m.n)
	if err != nil {
		return []string{err.Error()}
	}
	for deadline := time.Now().Add(15 * time.Minute); ; time.Sleep(time.Minute) {
		_, err = provider.CopyHub(ctx, portable(m.Platform), portable(to), provider.ExportOptions{}, nil)
		if err == nil || time.Now().After(deadline) {
			break
		}
		if to, err = m.again(to, err); err != nil {
			break
		}
	}
	if err != nil {
		return []string{errors.Join(err, closePlatform(to)).Error()}
	}
	faults := m.compare(before, contents(ctx, to.Client()))
	if err := closePlatform(m.Platform); err != nil {
		faults = append(faults, err.Error())
	}
	m.Platform = to
	return faults
}

// again returns a new hub for the next attempt if err can be resolved by waiting.
func (m *moving) again(to sim.Platform, err error) (sim.Platform, error) {
	if _, hidden := errors.AsType[*azurestorage.HiddenError](err); !hidden && !errors.Is(err, provider.ErrHubBusy) {
		return to, err
	}
	if err := closePlatform(to); err != nil {
		return to, err
	}
	m.n += kinds
	return m.open(m.n)
}

func closePlatform(p sim.Platform) error {
	switch p := p.(type) {
	case *local:
		return p.leave()
	case *logs:
		p.close()
	}
	return nil
}

// compare returns the differences between two hubs as clients see them.
func (m *moving) compare(before, after map[string]content) (faults []string) {
	for id, was := range before {
		is, ok := after[id]
		if !ok {
			faults = append(faults, fmt.Sprintf("%s is missing from the copy; in the source it is %+v", id, was.state))
			continue
		}
		if !m.exact { // the copy repairs rows that a dead worker did not update
			was.state, is.state = nil, nil
		}
		if diff := cmp.Diff(was, is, cmp.AllowUnexported(content{}), cmpopts.EquateEmpty()); diff != "" {
			faults = append(faults, fmt.Sprintf("%s (-source +copy):\n%s", id, diff))
		}
		delete(after, id)
	}
	for id := range after {
		if !m.exact {
			break // the source has the history, but not yet the row
		}
		faults = append(faults, id+" is not in the source")
	}
	slices.Sort(faults)
	return faults
}

// content is an instance as clients see it.
type content struct {
	state *provider.InstanceState
	past  []history.Event
}

func contents(ctx context.Context, c provider.Client) map[string]content {
	all := map[string]content{}
	q := provider.Query{Fetch: provider.Fetch{Input: true, Output: true}}
	for {
		page, err := c.Instances(ctx, q)
		if err != nil {
			panic(fmt.Sprintf("list instances: %v", err)) // requests of this client never fail
		}
		for _, s := range page.Instances {
			id := s.Instance.InstanceID
			past, err := c.History(ctx, id)
			if err != nil {
				panic(fmt.Sprintf("history of %s: %v", id, err))
			}
			for _, e := range past { // rows need not be updated in each episode
				if at := e.Head().Timestamp; at.After(s.LastUpdatedAt) {
					s.LastUpdatedAt = at
				}
			}
			all[id] = content{s, past}
		}
		if q.Continuation = page.Continuation; q.Continuation == "" {
			return all
		}
	}
}

func (m *moving) KeepsOrder() bool { return false }

func (m *moving) Client() provider.Client { return movingClient{m} }

// Inspect returns no faults, because the activities ran on several hubs.
func (m *moving) Inspect([]sim.ActivityRun) []string { return nil }

// with calls f with the current hub, which is not moved meanwhile.
func (m *moving) with(f func(provider.Client) error) error {
	m.turn <- struct{}{}
	defer func() { <-m.turn }()
	return f(m.Platform.Client())
}

// Status implements [sim.Platform].
func (m *moving) Status(id string) (status history.RuntimeStatus, err error) {
	err = m.with(func(provider.Client) (err error) {
		status, err = m.Platform.Status(id)
		return err
	})
	return status, err
}

// movingClient is a client of the current hub.
type movingClient struct{ m *moving }

func (c movingClient) StartInstance(ctx context.Context, start provider.TaskMessage, refuse []history.RuntimeStatus) error {
	return c.m.with(func(h provider.Client) error { return h.StartInstance(ctx, start, refuse) })
}

func (c movingClient) Send(ctx context.Context, m provider.TaskMessage) error {
	return c.m.with(func(h provider.Client) error { return h.Send(ctx, m) })
}

func (c movingClient) Instance(ctx context.Context, id string, fetch provider.Fetch) (s *provider.InstanceState, err error) {
	err = c.m.with(func(h provider.Client) error { s, err = h.Instance(ctx, id, fetch); return err })
	return s, err
}

func (c movingClient) Instances(ctx context.Context, q provider.Query) (p *provider.Page, err error) {
	err = c.m.with(func(h provider.Client) error { p, err = h.Instances(ctx, q); return err })
	return p, err
}

func (c movingClient) History(ctx context.Context, id string) (past []history.Event, err error) {
	err = c.m.with(func(h provider.Client) error { past, err = h.History(ctx, id); return err })
	return past, err
}

func (c movingClient) Purge(ctx context.Context, id string, seen *provider.InstanceState) error {
	return c.m.with(func(h provider.Client) error { return h.(provider.Purger).Purge(ctx, id, seen) })
}

// simulateMoved is simulate for a hub that is copied while instances are running.
func simulateMoved(t *testing.T, plan *sim.Plan, logger *slog.Logger) (faults []string) {
	t.Helper()
	dir := t.TempDir()
	inBubble(t, plan.Seed, func(t *testing.T) {
		m, err := newMoving(plan, dir, logger)
		if err != nil {
			t.Fatal(err)
		}
		faults = sim.Run(t.Context(), plan, m, logger)
		m.Settle()
		if err := closePlatform(m.Platform); err != nil {
			t.Error(err)
		}
	})
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
	return faults
}
