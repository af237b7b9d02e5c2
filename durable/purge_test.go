package durable_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/scattered"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
)

func allIDs(t testing.TB, c *durable.Client, q durable.Query) []string {
	t.Helper()
	var ids []string
	for s, err := range c.AllInstances(t.Context(), q) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, s.Instance.InstanceID)
	}
	return ids
}

func TestPurge_RemovesAFamilyOnlyIfAllMembersHaveEnded(t *testing.T) {
	withWorker(t, func(t *testing.T, p *plant, c *durable.Client) {
		i := must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.family, 2, durable.InstanceID("f")))
		_ = must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.waits, "", durable.InstanceID("other")))
		synctest.Wait()
		if err := i.Terminate(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		_, err := i.Purge(t.Context(), durable.Recursive)
		if state, ok := errors.AsType[*durable.InstanceStateError](err); !ok || state.InstanceID != "f+" {
			t.Errorf("error is %v, want an InstanceStateError for f+", err)
		}
		if diff := cmp.Diff([]string{"f", "f+", "f++", "other"}, allIDs(t, c, durable.Query{})); diff != "" {
			t.Errorf("instances (-want +got):\n%s", diff)
		}
		if err := i.Terminate(t.Context(), "", durable.Recursive); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if result, err := i.Purge(t.Context(), durable.Recursive); err != nil || result.Instances != 3 {
			t.Errorf("%+v, %v; want 3 instances purged", result, err)
		}
		if diff := cmp.Diff([]string{"other"}, allIDs(t, c, durable.Query{})); diff != "" {
			t.Errorf("instances (-want +got):\n%s", diff)
		}
	})
}

func TestPurgeMany_RemovesEndedInstancesThatMatchTheFilter(t *testing.T) {
	withWorker(t, func(t *testing.T, p *plant, c *durable.Client) {
		start := func(n int) {
			for i := range n {
				id := durable.InstanceID(fmt.Sprintf("%d-a%d", time.Now().Hour(), i))
				_ = must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.assembles, "", id))
			}
			_ = must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.waits, "", durable.InstanceID(fmt.Sprintf("%d-w", time.Now().Hour()))))
		}
		began := time.Now()
		start(2)
		time.Sleep(time.Hour)
		p.repaired.Store(true)
		start(3)
		time.Sleep(time.Hour)
		for _, tt := range []struct {
			name   string
			filter durable.PurgeFilter
			want   int
		}{
			{"only statuses that have not ended", durable.PurgeFilter{Statuses: []history.RuntimeStatus{history.Running, history.Pending}}, 0},
			{"another orchestrator", durable.PurgeFilter{Name: "Waits"}, 0},
			{"before the first start", durable.PurgeFilter{CreatedTo: began.Add(-time.Second)}, 0},
			{"a prefix", durable.PurgeFilter{IDPrefix: fmt.Sprintf("%d-a1", began.Hour())}, 1},
			{"a status and others", durable.PurgeFilter{Statuses: []history.RuntimeStatus{history.Failed, history.Running}}, 1},
			{"a name and a time", durable.PurgeFilter{Name: "Assembles", CreatedFrom: began.Add(time.Minute)}, 3},
			{"all", durable.PurgeFilter{}, 0},
		} {
			if result, err := c.PurgeMany(t.Context(), tt.filter); err != nil || result.Instances != tt.want {
				t.Errorf("%s: %+v, %v; want %d", tt.name, result, err, tt.want)
			}
		}
		if left := allIDs(t, c, durable.Query{}); len(left) != 2 {
			t.Errorf("remaining instances are %v, want the two that wait", left)
		}
	})
}

// failingHub cannot purge some instances. Its pages have two instances.
type failingHub struct {
	*memhub.Hub
	failing func(id string) bool
}

func (h failingHub) Purge(ctx context.Context, id string, seen *provider.InstanceState) error {
	if h.failing(id) {
		return errors.New("the disk is full")
	}
	return h.Hub.Purge(ctx, id, seen)
}

func (h failingHub) Instances(ctx context.Context, q provider.Query) (*provider.Page, error) {
	q.PageSize = 2
	return h.Hub.Instances(ctx, q)
}

// corruptHub lists an entity whose state cannot be decoded.
type corruptHub struct{ *memhub.Hub }

func (corruptHub) Instances(context.Context, provider.Query) (*provider.Page, error) {
	page := new(provider.Page)
	for id, input := range map[string]string{"@counter@bad": "{", "@counter@good": `{"exists":true,"state":"1"}`} {
		page.Instances = append(page.Instances, &provider.InstanceState{Instance: history.OrchestrationInstance{InstanceID: id}, Input: &input})
	}
	return page, nil
}

func TestListEntities_ReportsUnreadableEntities(t *testing.T) {
	t.Parallel()
	page, err := durable.NewClient(corruptHub{memhub.New()}, nil).ListEntities(t.Context(), durable.EntityQuery{Name: "counter", IncludeEmpty: true, FetchState: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Entities) != 1 || page.Entities[0].ID.Key != "good" || len(page.Unreadable) != 1 || page.Unreadable[0].InstanceID != "@counter@bad" {
		t.Errorf("the page has entities %v and unreadable %v", page.Entities, page.Unreadable)
	}
}

// carelessHub ignores the conditions of a query.
type carelessHub struct {
	*memhub.Hub
	listed func(*provider.InstanceState) // changes the listed states
}

func (h carelessHub) Instances(ctx context.Context, q provider.Query) (*provider.Page, error) {
	page, err := h.Hub.Instances(ctx, provider.Query{})
	for _, s := range page.Instances {
		h.listed(s)
	}
	return page, err
}

// PurgeMany must keep instances that the provider lists by mistake, and instances that
// no longer match at the time of the purge.
func TestPurgeMany_ChecksEachInstanceAgainBeforeItPurges(t *testing.T) {
	filters := []durable.PurgeFilter{
		{Name: "Waits"},
		{IDPrefix: "b\ufffd"},
		{CreatedFrom: time.Now().Add(24 * time.Hour)},
		{CreatedTo: time.Unix(1, 0)},
		{Statuses: []history.RuntimeStatus{history.Terminated}},
	}
	for name, listed := range map[string]func(*provider.InstanceState){
		"listed by mistake":        func(*provider.InstanceState) {},
		"listed with an old state": func(s *provider.InstanceState) { s.Name, s.Status = "Waits", history.Terminated },
	} {
		synctest.Test(t, func(t *testing.T) {
			p := new(plant)
			p.repaired.Store(true)
			h := carelessHub{memhub.New(), listed}
			entity := &history.ExecutionStarted{Instance: history.OrchestrationInstance{InstanceID: "@e@k"}, Header: history.NewHeader(time.Now().Add(24 * time.Hour))}
			if err := h.StartInstance(t.Context(), provider.TaskMessage{Event: entity, Target: entity.Instance}, nil); err != nil {
				t.Fatal(err)
			}
			defer run(t, h, p.registry(), durable.Config{})()
			c := durable.NewClient(h, p.registry())
			for _, id := range []durable.InstanceID{"a", "b", "c"} {
				_ = must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.assembles, "", id))
			}
			time.Sleep(time.Hour)
			for _, filter := range filters {
				if result, err := c.PurgeMany(t.Context(), filter); err != nil || result.Instances != 0 {
					t.Errorf("%s: %+v purged %d, %v; want none", name, filter, result.Instances, err)
				}
			}
			if page, err := h.Hub.Instances(t.Context(), provider.Query{}); err != nil || len(page.Instances) != 4 {
				t.Errorf("%s: remaining instances are %v, %v; want all 4", name, page, err)
			}
		})
	}
}

func TestPurgeMany_ContinuesAfterAFailureAndReturnsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(plant)
		h := failingHub{memhub.New(), func(id string) bool { return id == "b" }}
		defer run(t, h, p.registry(), durable.Config{})()
		c := durable.NewClient(h, p.registry())
		for _, id := range []durable.InstanceID{"a", "b", "c", "d", "e"} {
			_ = must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.assembles, "", id))
		}
		time.Sleep(time.Minute)
		result, err := c.PurgeMany(t.Context(), durable.PurgeFilter{})
		if err == nil || err.Error() != "purge instances: instance b: the disk is full" || result.Instances != 4 {
			t.Errorf("%+v, %v; want 4 purged and 1 failed", result, err)
		}
		if diff := cmp.Diff([]string{"b"}, allIDs(t, c, durable.Query{})); diff != "" {
			t.Errorf("instances (-want +got):\n%s", diff)
		}
	})
}

// busyHub calls before right before each purge.
type busyHub struct {
	*memhub.Hub
	before func(id string)
}

func (h busyHub) Purge(ctx context.Context, id string, seen *provider.InstanceState) error {
	h.before(id)
	return h.Hub.Purge(ctx, id, seen)
}

// An instance is restarted between its check and its purge. The start was accepted, so
// the purge must keep the instance.
func TestPurge_KeepsAnInstanceThatWasRestartedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(plant)
		h := memhub.New()
		defer run(t, h, p.registry(), durable.Config{})()
		c := durable.NewClient(h, p.registry())
		start := func(id string) { // later, so that no worker runs it immediately
			_ = must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.assembles, "", durable.InstanceID(id), durable.StartAt(time.Now().Add(time.Second))))
		}
		start("a")
		time.Sleep(time.Minute)
		busy := durable.NewClient(busyHub{h, start}, p.registry())
		_, err := busy.Purge(t.Context(), "a")
		if state, ok := errors.AsType[*durable.InstanceStateError](err); !ok || state.Status != history.Pending {
			t.Errorf("error is %v, want an InstanceStateError with status Pending", err)
		}
		time.Sleep(time.Minute)
		_, err = busy.PurgeMany(t.Context(), durable.PurgeFilter{})
		if state, ok := errors.AsType[*durable.InstanceStateError](err); !ok || state.Status != history.Pending {
			t.Errorf("error is %v, want an InstanceStateError with status Pending", err)
		}
		time.Sleep(time.Minute)
		again := durable.NewClient(busyHub{h, func(id string) { start(id); time.Sleep(time.Minute) }}, p.registry())
		if _, err := again.Purge(t.Context(), "a"); !errors.Is(err, provider.ErrInstanceChanged) {
			t.Errorf("error is %v, want ErrInstanceChanged", err)
		}
		if s := statusNow(t, c, "a"); !s.IsTerminal() {
			t.Errorf("status is %v, want a terminal one", s)
		}
		if result, err := c.Purge(t.Context(), "a"); err != nil || result.Instances != 1 {
			t.Errorf("%+v, %v; want 1 instance purged", result, err)
		}
	})
}

// Matching instances follow pages without one.
func TestPurgeMany_ReadsAllPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, p := memhub.New(), new(plant)
		defer run(t, h, p.registry(), durable.Config{})()
		c := durable.NewClient(scattered.Hub{Store: h}, p.registry())
		var kept []string
		for i := range 9 {
			id := fmt.Sprint("i", i)
			if i%4 == 3 {
				kept = append(kept, id)
				_ = must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.waits, "", durable.InstanceID(id)))
			} else {
				_ = must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.assembles, "", durable.InstanceID(id)))
			}
		}
		time.Sleep(time.Minute)
		if got := allIDs(t, c, durable.Query{}); len(got) != 9 {
			t.Errorf("%d instances are listed, want 9", len(got))
		}
		if result, err := c.PurgeMany(t.Context(), durable.PurgeFilter{}); err != nil || result.Instances != 7 {
			t.Errorf("%+v, %v; want 7 instances purged", result, err)
		}
		if got := allIDs(t, c, durable.Query{}); !slices.Equal(got, kept) {
			t.Errorf("%q are left, want %q", got, kept)
		}
	})
}

func TestAll_ReadsPagesOnDemand(t *testing.T) {
	t.Parallel()
	p := new(plant)
	h := &watchedPages{Hub: memhub.New()}
	c := durable.NewClient(h, p.registry())
	for i := range 5 {
		_ = must[*durable.Instance[string]](t)(durable.Start(t.Context(), c, p.waits, "", durable.InstanceID(fmt.Sprint("i", i))))
	}
	if got := allIDs(t, c, durable.Query{PageSize: 2}); !slices.Equal(got, []string{"i0", "i1", "i2", "i3", "i4"}) || h.pages != 3 {
		t.Errorf("%v on %d pages, want 5 on 3", got, h.pages)
	}
	h.pages = 0
	for s, err := range c.AllInstances(t.Context(), durable.Query{PageSize: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		if s.Instance.InstanceID == "i1" {
			break
		}
	}
	if h.pages != 1 {
		t.Errorf("%d pages were read, want 1", h.pages)
	}
	h.err = errors.New("out of order")
	n := 0
	for s, err := range c.AllInstances(t.Context(), durable.Query{}) {
		if n++; s != nil || !errors.Is(err, h.err) {
			t.Errorf("%v, %v; want the error", s, err)
		}
	}
	if n != 1 {
		t.Errorf("the iterator yielded the error %d times, want 1", n)
	}
}

type watchedPages struct {
	*memhub.Hub
	pages int
	err   error
}

func (h *watchedPages) Instances(ctx context.Context, q provider.Query) (*provider.Page, error) {
	if h.pages++; h.err != nil {
		return nil, h.err
	}
	return h.Hub.Instances(ctx, q)
}
