package providertest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

var queries = area{"queries", []test{
	{"conditions select instances, alone and in all combinations", running(conditions)},
	{"a prefix with any last character selects the IDs that begin with it", running(prefixes)},
	{"pages cover all instances once", running(paging)},
	{"a page ends when it reaches its size limit in bytes", running(longPages)},
	{"a continuation is a valid HTTP header, and invalid continuations are refused", running(continuations)},
	{"a query of an empty hub returns no instances", emptyHub},
	{"a listed instance equals the same instance read alone", running(listedAsRead)},
	{"unreadable instances are skipped and reported", running(unreadable)},
}}

func conditions(w *world) {
	w.create("pending")
	w.next("pending").release() // keeps it Pending
	base := now().Add(-time.Hour).Truncate(time.Minute)
	minute := func(n float64) time.Time { return base.Add(time.Duration(n * float64(time.Minute))) }
	for i, tt := range []struct{ id, name string }{
		{"x-1", "A"}, {"x-2", "B"}, {"x-3", "A"}, {"@entity@x", "A"}, {"y", "A"}, {"x-4", "a"}, {"x-5", "A"},
	} {
		start := started(tt.id, "execution of "+tt.id, nil)
		start.Timestamp, start.Name = minute(float64(i+1)), tt.name
		w.createAs(start)
		e := w.nextOf(tt.id)
		switch tt.id {
		case "x-1":
			e.end(history.Completed, nil)
		case "x-2":
			e.end(history.Failed, text("why"))
		}
		e.finish()
	}
	all := []string{"@entity@x", "pending", "x-1", "x-2", "x-3", "x-4", "x-5", "y"}
	check := func(name string, q provider.Query, want []string) {
		w.Helper()
		for _, size := range []int{0, 1, 2} {
			q.PageSize = size
			w.equal(fmt.Sprintf("%s, pages of %d", name, size), w.listIDs(q), want)
		}
	}
	alone := []struct {
		name string
		add  func(*provider.Query)
		want []string
	}{
		{"from a time", func(q *provider.Query) { q.CreatedFrom = minute(2) }, []string{"@entity@x", "pending", "x-2", "x-3", "x-4", "x-5", "y"}},
		{"to a time", func(q *provider.Query) { q.CreatedTo = minute(6) }, []string{"@entity@x", "x-1", "x-2", "x-3", "x-4", "y"}},
		{"statuses", func(q *provider.Query) { q.Statuses = []history.RuntimeStatus{history.Running, history.Failed} }, []string{"@entity@x", "x-2", "x-3", "x-4", "x-5", "y"}},
		{"prefix", func(q *provider.Query) { q.IDPrefix = "x-" }, []string{"x-1", "x-2", "x-3", "x-4", "x-5"}},
		{"name", func(q *provider.Query) { q.Name = "A" }, []string{"@entity@x", "x-1", "x-3", "x-5", "y"}},
		{"no entities", func(q *provider.Query) { q.ExcludeEntities = true }, []string{"pending", "x-1", "x-2", "x-3", "x-4", "x-5", "y"}},
	}
	for chosen := range 1 << len(alone) {
		var q provider.Query
		name, want := "all", slices.Clone(all)
		for i, c := range alone {
			if chosen>>i&1 == 1 {
				c.add(&q)
				name += ", " + c.name
				want = slices.DeleteFunc(want, func(id string) bool { return !slices.Contains(c.want, id) })
			}
		}
		check(name, q, want)
	}
	for _, tt := range []struct {
		name string
		q    provider.Query
		want []string
	}{
		{"prefix that is an ID", provider.Query{IDPrefix: "y"}, []string{"y"}},
		{"prefix of none", provider.Query{IDPrefix: "z"}, nil},
		{"a status of none", provider.Query{Statuses: []history.RuntimeStatus{history.Suspended}}, nil},
		{"a name of none", provider.Query{Name: "C"}, nil},
		{"a name that begins another", provider.Query{Name: "Orch"}, nil},
		{"one moment", provider.Query{CreatedFrom: minute(3), CreatedTo: minute(3)}, []string{"x-3"}},
		{"a moment between", provider.Query{CreatedFrom: minute(3.1), CreatedTo: minute(3.9)}, nil},
	} {
		check(tt.name, tt.q, tt.want)
	}
}

// prefixes queries prefixes that are hard to turn into a range, in UTF-8 or UTF-16. Their last
// character has no successor, or its successor is not a valid character.
func prefixes(w *world) {
	var ids []string
	for _, last := range []string{"", "~", "\u0080", "\ud7ff", "\ue000", "\ufffc", "\ufffd", "\U00010000", "\U0001f600", "\U0010ffff"} {
		for _, rest := range []string{"", "1", "\U0010ffff"} {
			ids = append(ids, "a"+last+rest)
		}
	}
	ids = append(ids, "A", "b", "b\ufffd", "\ue001", "z")
	slices.Sort(ids)
	ids = slices.Compact(ids)
	for _, id := range ids {
		w.create(id)
	}
	for _, prefix := range append(slices.Clone(ids), "\U0010ffff", "a\xff", "a\xed\xa0\x80", "\xff") {
		want := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !strings.HasPrefix(id, prefix) })
		w.equal(fmt.Sprintf("prefix %q", prefix), w.listIDs(provider.Query{IDPrefix: prefix}), want)
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

// longPages creates instances with short and long inputs and with inputs longer than a page.
// Their IDs sort differently in UTF-8, in UTF-16 and as escaped row keys.
func longPages(w *world) {
	const most = 10_000
	sizes := []int{10, 70_000, 3_000, 4_000, 4_000, 10, most, 70_000, 70_000, 10}
	inputs := map[string]string{}
	for i, id := range []string{"a", "a/b", "a b", "a^", "aé", "b\uffee", "b\U0001f600", "b\ue000", "c'c", "ü"} {
		inputs[id] = `"` + strings.Repeat("x", sizes[i]-2) + `"`
		start := started(id, "execution of "+id, nil)
		start.Input = new(inputs[id])
		w.createAs(start)
	}
	for _, size := range []int{0, 1, 2, 7} {
		seen := map[string]bool{}
		q := provider.Query{Fetch: provider.Fetch{Input: true}, PageSize: size, PageBytes: most}
		for page := range w.pages(q) {
			before := 0 // bytes on the page, without the last instance
			for i, s := range page.Instances {
				id := s.Instance.InstanceID
				if seen[id] || s.Input == nil || *s.Input != inputs[id] {
					w.Errorf("pages of %d: %q is listed twice or with a wrong input", size, id)
				}
				if seen[id] = true; i < len(page.Instances)-1 {
					before += len(inputs[id])
				}
			}
			if before >= most {
				w.Errorf("pages of %d: %d instances have %d bytes before the last, want less than %d", size, len(page.Instances), before, most)
			}
		}
		w.equal(fmt.Sprintf("number of listed instances, pages of %d", size), len(seen), len(inputs))
	}
	one := w.listIDs(provider.Query{PageBytes: 1})
	w.equal("number of instances without inputs", len(one), len(inputs))
}

// continuations uses IDs that HTTP would change: with leading and trailing blanks, and with
// characters that are invalid in a header.
func continuations(w *world) {
	want := []string{" ", " a ", "a b", "ünïcode 世界 😀", "😀 "}
	for _, id := range want {
		w.create(id)
	}
	slices.Sort(want)
	w.equal("pages of 1", w.listIDs(provider.Query{PageSize: 1}), want)
	for _, token := range []string{"a b", "!", "%", " ", "ü", "YQ==", "YQ", "bm9ib2R5"} {
		ctx, cancel := w.patient()
		_, err := w.p.Instances(ctx, provider.Query{Continuation: token})
		cancel()
		if !errors.Is(err, provider.ErrContinuation) {
			w.Errorf("continuation %q: %v, want provider.ErrContinuation", token, err)
		}
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

func unreadable(w *world) {
	if w.hub.Damage == nil {
		w.Skip("Hub.Damage is nil")
	}
	for _, id := range []string{"a", "b", "c", "d"} {
		w.create(id)
		w.next(id).end(history.Completed, text("output")).finish()
		w.equal("status of "+id, w.state(id).Status, history.Completed)
	}
	w.hub.Damage(w.T, "a")
	w.hub.Damage(w.T, "c")
	for _, size := range []int{0, 1, 2, 4} {
		var read, left []string
		q := provider.Query{PageSize: size, Statuses: []history.RuntimeStatus{history.Completed}}
		for {
			ctx, cancel := w.patient()
			page, err := w.p.Instances(ctx, q)
			cancel()
			w.must("Instances", err)
			for _, s := range page.Instances {
				read = append(read, s.Instance.InstanceID)
			}
			for _, u := range page.Unreadable {
				left = append(left, u.InstanceID)
				if u.Cause == nil {
					w.Errorf("Unreadable has no cause for %s", u.InstanceID)
				}
			}
			if page.Continuation == "" {
				break
			}
			q.Continuation = page.Continuation
		}
		slices.Sort(read)
		slices.Sort(left)
		w.equal(fmt.Sprintf("instances, pages of %d", size), read, []string{"b", "d"})
		w.equal(fmt.Sprintf("unreadable instances, pages of %d", size), left, []string{"a", "c"})
	}
	ctx, cancel := w.patient()
	defer cancel()
	if s, err := w.p.Instance(ctx, "a", provider.Fetch{}); err == nil || errors.Is(err, provider.ErrInstanceNotFound) {
		w.Errorf("Instance of an unreadable instance returned %+v, %v; want an error other than ErrInstanceNotFound", s, err)
	}
	w.create("e") // other instances still work
	w.next("e").finish()
}
