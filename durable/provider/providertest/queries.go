package providertest

import (
	"fmt"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

var queries = area{"queries", []test{
	{"conditions select instances", running(conditions)},
	{"pages follow each other until the last", running(paging)},
	{"a query of an empty hub is empty", emptyHub},
	{"what is listed is what is read one by one", running(listedAsRead)},
}}

// list returns the instances of all pages.
func (w *world) list(q provider.Query) []*provider.InstanceState {
	w.Helper()
	var all []*provider.InstanceState
	for pages := 0; ; pages++ {
		if pages > 1000 {
			w.Fatal("the query does not come to an end")
		}
		ctx, cancel := w.patient()
		page, err := w.p.Instances(ctx, q)
		cancel()
		w.must("Instances", err)
		if q.PageSize > 0 && len(page.Instances) > q.PageSize {
			w.Errorf("a page has %d instances, want at most %d", len(page.Instances), q.PageSize)
		}
		all = append(all, page.Instances...)
		if page.Continuation == "" {
			return all
		}
		q.Continuation = page.Continuation
	}
}

func (w *world) listIDs(q provider.Query) []string {
	w.Helper()
	var ids []string
	for _, s := range w.list(q) {
		ids = append(ids, s.Instance.InstanceID)
	}
	slices.Sort(ids)
	return ids
}

func conditions(w *world) {
	w.create("pending")
	w.next("pending").release() // so that it stays as it is
	base := now().Add(-time.Hour)
	for i, id := range []string{"x-1", "x-2", "x-3", "@entity@x", "y"} {
		start := started(id, "execution of "+id, nil)
		start.Timestamp = base.Add(time.Duration(i) * time.Minute)
		w.createAs(start)
		e := w.nextOf(id)
		switch id {
		case "x-1":
			e.end(history.Completed, nil)
		case "x-2":
			e.end(history.Failed, text("why"))
		}
		e.finish()
	}
	minute := func(n float64) time.Time { return base.Add(time.Duration(n * float64(time.Minute))) }
	for _, tt := range []struct {
		name string
		q    provider.Query
		want []string
	}{
		{"all", provider.Query{}, []string{"@entity@x", "pending", "x-1", "x-2", "x-3", "y"}},
		{"no entities", provider.Query{ExcludeEntities: true}, []string{"pending", "x-1", "x-2", "x-3", "y"}},
		{"prefix", provider.Query{IDPrefix: "x-"}, []string{"x-1", "x-2", "x-3"}},
		{"prefix that is an ID", provider.Query{IDPrefix: "y"}, []string{"y"}},
		{"prefix of none", provider.Query{IDPrefix: "z"}, nil},
		{"one status", provider.Query{Statuses: []history.RuntimeStatus{history.Failed}}, []string{"x-2"}},
		{"two statuses", provider.Query{Statuses: []history.RuntimeStatus{history.Completed, history.Pending}}, []string{"pending", "x-1"}},
		{"a status of none", provider.Query{Statuses: []history.RuntimeStatus{history.Suspended}}, nil},
		{"from a time", provider.Query{CreatedFrom: minute(1.5)}, []string{"@entity@x", "pending", "x-3", "y"}},
		{"to a time", provider.Query{CreatedTo: minute(1.5)}, []string{"x-1", "x-2"}},
		{"between times", provider.Query{CreatedFrom: minute(0.5), CreatedTo: minute(2.5)}, []string{"x-2", "x-3"}},
		{"all at once", provider.Query{
			CreatedFrom: minute(0.5), CreatedTo: minute(2.5), IDPrefix: "x", ExcludeEntities: true,
			Statuses: []history.RuntimeStatus{history.Running},
		}, []string{"x-3"}},
	} {
		for _, size := range []int{0, 1, 2} {
			tt.q.PageSize = size
			w.equal(fmt.Sprintf("%s, pages of %d", tt.name, size), w.listIDs(tt.q), tt.want)
		}
	}
}

// nextOf returns the next work item of an instance; those of others are
// released as they are.
func (w *world) nextOf(id string) *episode {
	w.Helper()
	ctx, cancel := w.patient()
	defer cancel()
	for {
		e := w.try(ctx)
		switch {
		case e == nil:
			w.Fatalf("instance %q was not handed out", id)
		case e.item.Instance.InstanceID == id:
			return e
		}
		e.release()
	}
}

func paging(w *world) {
	const n = 23
	var want []string
	for i := range n {
		id := fmt.Sprintf("instance-%02d", i)
		want = append(want, id)
		w.create(id)
	}
	for _, size := range []int{1, 5, 22, 23, 24, 0} {
		w.equal(fmt.Sprintf("pages of %d", size), w.listIDs(provider.Query{PageSize: size}), want)
	}
}

func emptyHub(w *world) {
	w.equal("instances", w.listIDs(provider.Query{}), []string(nil))
}

func listedAsRead(w *world) {
	for _, id := range []string{"a", "b", "c"} {
		w.create(id)
		e := w.next(id).custom(text(`"status of ` + id + `"`))
		if id == "b" {
			e.end(history.Completed, text("output"))
		}
		e.finish()
	}
	for _, s := range w.list(provider.Query{Fetch: provider.Fetch{Input: true, Output: true}}) {
		w.equal("listed instance", s, w.state(s.Instance.InstanceID))
	}
}
