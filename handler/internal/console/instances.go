package console

import (
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
)

var instancesRoutes = []route{
	{method: http.MethodGet, path: "instances", serve: showInstances},
	{method: http.MethodPost, path: "instances/preview", serve: previewBulk},
	{method: http.MethodPost, path: "instances/run", serve: runBulk},
}

// An instanceList is the data of the list of instances.
type instanceList struct {
	Filter     listFilter
	Instances  []*durable.InstanceState
	LookedAt   int // instances that were compared with the filter
	Unreadable int
	Sizes      []sizeLink
	Statuses   []string
	Actions    []action
	IsFirst    bool
	First      string // query of the first page
	Previous   string // query of the previous page, if HasBack
	HasBack    bool
	Next       string // query of the next page, "" on the last
	Order      listOrder
	Headings   []heading
	IsWhole    bool // all matching instances are on the page, so it can be sorted
}

// A sizeLink links to the list with another page size.
type sizeLink struct {
	Size  int
	Query string
	Here  bool
}

// searchTime limits the search for instances with a tag or version, which no store can filter by. After
// this time the page offers to continue.
const searchTime = 2 * time.Second

// showInstances answers GET instances with one page of the list. The store determines the order and can
// continue after any page.
func showInstances(v *visit) error {
	list := instanceList{Filter: filterOf(v.QueryParams()), Order: orderOf(v.QueryParams()), Statuses: statusNames}
	query := list.Filter.Values()
	list.First = query.Encode()
	continuation := v.value("continuation")
	list.IsFirst = continuation == ""
	for _, size := range pageSizes {
		resized := list.Filter
		resized.Size = size
		q := resized.Values()
		list.Order.addTo(q)
		list.Sizes = append(list.Sizes, sizeLink{size, q.Encode(), size == list.Filter.Size})
	}
	q, err := list.Filter.query(continuation)
	if err != nil {
		return err
	}
	for began := time.Now(); ; {
		page, err := v.hub.Client.ListInstances(v.Request().Context(), q)
		if err != nil {
			return management.BadToken(err)
		}
		list.LookedAt += len(page.Instances)
		list.Unreadable += len(page.Unreadable)
		for _, s := range page.Instances {
			if list.Filter.matches(s) {
				list.Instances = append(list.Instances, s)
			}
		}
		q.Continuation = page.Continuation
		if q.Continuation == "" || len(list.Instances) >= list.Filter.Size || len(list.Instances) > 0 && list.Filter.storeSelects() || time.Since(began) > searchTime {
			break
		}
	}
	trailSoFar := trail(v.QueryParams()["way"])
	if list.IsFirst {
		trailSoFar = nil
	}
	list.Previous, list.HasBack = trailSoFar.back(list.Filter)
	if q.Continuation != "" {
		query.Set("continuation", q.Continuation)
		query["way"] = trailSoFar.extend(continuation)
		list.Next = query.Encode()
	}
	if list.IsWhole = list.IsFirst && list.Next == ""; list.IsWhole {
		list.Order.sort(list.Instances)
	}
	list.Headings = headings(list.Filter, list.Order, list.IsWhole)
	statuses := q.Statuses
	if list.IsWhole {
		statuses = nil
		for _, s := range list.Instances {
			statuses = append(statuses, s.Status)
		}
	}
	list.Actions = actionsIn(statuses)
	return v.page("instances", "Instances", list)
}

// statusNames are the statuses in the filter form.
var statusNames = func() (names []string) {
	for _, s := range append(append([]history.RuntimeStatus{}, liveStatuses...), endedStatuses...) {
		names = append(names, s.String())
	}
	return names
}()

// statusClass returns the style class of a status tag.
func statusClass(s history.RuntimeStatus) string {
	switch s {
	case history.Completed:
		return "good"
	case history.Failed:
		return "bad"
	case history.Suspended, history.Terminated, history.Canceled:
		return "warn"
	case history.Running, history.ContinuedAsNew:
		return "busy"
	case history.Pending:
	}
	return ""
}

// instanceQuery returns the query that identifies an instance.
func instanceQuery(id string) string { return url.Values{"id": {id}}.Encode() }

// address returns the URL of a page or part, for an encoded query.
func address(v view, path, query string) string { return v.Base + "/" + path + "?" + query }

// instanceURL returns the URL of the page of an instance or entity. id is a string or a
// [durable.InstanceID].
func instanceURL(v view, id any) string {
	text := fmt.Sprint(id)
	if e, err := durable.ParseEntityID(durable.InstanceID(text)); err == nil {
		return address(v, "entity", url.Values{"name": {e.Name}, "key": {e.Key}}.Encode())
	}
	return address(v, "instance", instanceQuery(text))
}

// instanceLink returns a link to the page of an instance or entity.
func instanceLink(v view, id any) template.HTML {
	return template.HTML(`<a href="` + template.HTMLEscapeString(instanceURL(v, id)) + `">` + template.HTMLEscapeString(visible(id)) + `</a>`)
}
