package console

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/statusjson"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
)

// A listFilter selects instances. Its fields are the texts in the filter form.
type listFilter struct {
	Statuses []string
	Name     string
	Prefix   string
	From, To string
	Tag      string // a tag name, or name=value
	Version  string
	Size     int
}

// pageSizes are the page sizes to choose from.
var pageSizes = []int{25, 50, 100, 500}

const defaultSize = 50

// filterOf reads a filter from a query or a form. It ignores page sizes that are not in pageSizes.
func filterOf(v url.Values) listFilter {
	text := func(name string) string { return strings.TrimSpace(v.Get(name)) }
	f := listFilter{
		Name: text("name"), Prefix: text("prefix"), From: text("createdFrom"), To: text("createdTo"),
		Tag: text("tag"), Version: text("version"), Size: defaultSize,
	}
	for _, s := range v["status"] {
		if _, ok := history.ParseRuntimeStatus(s); ok && !slices.Contains(f.Statuses, s) {
			f.Statuses = append(f.Statuses, s)
		}
	}
	if n, err := strconv.Atoi(text("size")); err == nil && slices.Contains(pageSizes, n) {
		f.Size = n
	}
	return f
}

// Values is the inverse of filterOf.
func (f listFilter) Values() url.Values {
	v := url.Values{}
	for name, value := range map[string]string{
		"name": f.Name, "prefix": f.Prefix, "createdFrom": f.From, "createdTo": f.To, "tag": f.Tag, "version": f.Version,
	} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if len(f.Statuses) > 0 {
		v["status"] = f.Statuses
	}
	if f.Size != defaultSize {
		v.Set("size", strconv.Itoa(f.Size))
	}
	return v
}

// Shown returns the fields that are set, by their titles.
func (f listFilter) Shown() map[string][]string {
	shown := map[string][]string{"Status": f.Statuses}
	for title, value := range map[string]string{
		"Orchestrator": f.Name, "ID": f.Prefix, "From": f.From, "To": f.To, "Tag": f.Tag, "Version": f.Version,
	} {
		if value != "" {
			shown[title] = []string{value}
		}
	}
	return shown
}

// Has reports whether the filter selects a status.
func (f listFilter) Has(status string) bool { return slices.Contains(f.Statuses, status) }

// Since returns the lower bound of the creation time for the form.
func (f listFilter) Since() string { return fieldTime(f.From) }

// Before returns the upper bound of the creation time for the form.
func (f listFilter) Before() string { return fieldTime(f.To) }

// fieldTime formats a time for a form field.
func fieldTime(text string) string {
	t, ok := web.ParseTime(text)
	if !ok {
		return ""
	}
	return t.Format("2006-01-02T15:04:05")
}

// IsSet reports whether the filter excludes anything.
func (f listFilter) IsSet() bool {
	f.Size = defaultSize
	return len(f.Values()) > 0
}

// query returns the query for the store. It fails if a time is not valid.
func (f listFilter) query(continuation string) (durable.Query, error) {
	q := durable.Query{
		IDPrefix: f.Prefix, Name: f.Name, ExcludeEntities: true, PageSize: f.Size, Continuation: continuation,
	}
	for _, s := range f.Statuses {
		status, _ := history.ParseRuntimeStatus(s)
		q.Statuses = append(q.Statuses, status)
	}
	for _, bound := range []struct {
		name, text string
		to         *time.Time
	}{{"created from", f.From, &q.CreatedFrom}, {"created to", f.To, &q.CreatedTo}} {
		if bound.text == "" {
			continue
		}
		t, ok := web.ParseTime(bound.text)
		if !ok {
			return q, web.BadRequest("The time %q of %q cannot be read; want one such as 2026-01-31T12:00, in UTC.", bound.text, bound.name)
		}
		*bound.to = t
	}
	return q, nil
}

// matches reports whether an instance matches the conditions that stores cannot filter by.
func (f listFilter) matches(s *durable.InstanceState) bool {
	return (f.Version == "" || s.Version == f.Version) && (f.Tag == "" || statusjson.Tags(s.Tags).Contain(f.Tag))
}

// storeSelects reports whether the store can apply the complete filter.
func (f listFilter) storeSelects() bool { return f.Tag == "" && f.Version == "" }
