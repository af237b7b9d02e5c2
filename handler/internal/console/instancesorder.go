package console

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// A column is a column of the list of instances.
type column struct {
	Name, Title string
	compare     func(a, b *durable.InstanceState) int // nil if the list cannot be sorted by it
}

var columns = []column{
	{"id", "ID", func(a, b *durable.InstanceState) int {
		return strings.Compare(a.Instance.InstanceID, b.Instance.InstanceID)
	}},
	{"name", "Name", func(a, b *durable.InstanceState) int { return strings.Compare(a.Name, b.Name) }},
	{"status", "Status", func(a, b *durable.InstanceState) int { return strings.Compare(a.Status.String(), b.Status.String()) }},
	{"version", "Version", func(a, b *durable.InstanceState) int { return strings.Compare(a.Version, b.Version) }},
	{"created", "Created", func(a, b *durable.InstanceState) int { return a.CreatedAt.Compare(b.CreatedAt) }},
	{"updated", "Updated", func(a, b *durable.InstanceState) int { return a.LastUpdatedAt.Compare(b.LastUpdatedAt) }},
	{"took", "Took", func(a, b *durable.InstanceState) int { return cmp.Compare(durationOf(a), durationOf(b)) }},
	{"tags", "Tags", nil},
}

// durationOf returns the duration of an instance in nanoseconds, or -1 if it has not ended.
func durationOf(s *durable.InstanceState) int64 {
	if !s.Status.IsTerminal() {
		return -1
	}
	return int64(s.LastUpdatedAt.Sub(s.CreatedAt))
}

// A listOrder is a sort order of the list. Stores cannot sort, so only a list that fits on one page is
// sorted.
type listOrder struct {
	Column string // "" for the order of the store
	Down   bool   // descending
}

// orderOf reads an order from a query. It ignores columns that cannot be sorted.
func orderOf(v url.Values) listOrder {
	o := listOrder{v.Get("sort"), v.Get("down") != ""}
	if !slices.ContainsFunc(columns, func(c column) bool { return c.Name == o.Column && c.compare != nil }) {
		return listOrder{}
	}
	return o
}

// addTo adds the order to a query.
func (o listOrder) addTo(v url.Values) {
	if o.Column != "" {
		v.Set("sort", o.Column)
	}
	if o.Down {
		v.Set("down", "1")
	}
}

// sort sorts instances. It is stable.
func (o listOrder) sort(all []*durable.InstanceState) {
	i := slices.IndexFunc(columns, func(c column) bool { return c.Name == o.Column })
	if i < 0 {
		return
	}
	slices.SortStableFunc(all, func(a, b *durable.InstanceState) int {
		if o.Down {
			a, b = b, a
		}
		return columns[i].compare(a, b)
	})
}

// A heading is the header cell of a column.
type heading struct {
	Title string
	Query string // sorts by the column, or reverses the order; "" if it cannot be sorted
	Sort  string // ascending, descending, or "" if the list is not sorted by it
}

// headings returns the header cells of a list. isWhole reports that all matching instances are on the
// page.
func headings(f listFilter, o listOrder, isWhole bool) (all []heading) {
	for _, c := range columns {
		h := heading{Title: c.Title}
		if isWhole && c.compare != nil {
			next := listOrder{Column: c.Name}
			if o.Column == c.Name {
				next.Down, h.Sort = !o.Down, "ascending"
				if o.Down {
					h.Sort = "descending"
				}
			}
			q := f.Values()
			next.addTo(q)
			h.Query = q.Encode()
		}
		all = append(all, h)
	}
	return all
}
