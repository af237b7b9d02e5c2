package console

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime/debug"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
)

var overviewRoutes = []route{
	{method: http.MethodGet, path: "", serve: showOverview},
	{method: http.MethodGet, path: "overview/now", serve: showNow, live: 5 * time.Second},
	{method: http.MethodGet, path: "overview/counts", serve: showCounts},
}

// An overview is the data of the first page.
type overview struct {
	Now     hubNow
	Rates   throughput
	Program program
	Began   time.Time
}

// A hubNow is the current state of the hub, without its instances.
type hubNow struct {
	Health         management.HealthPayload
	Load           *management.ScalePayload // nil if the hub does not report it
	IsSingleWorker bool                     // no other process can use the hub
	Usage          *usage                   // use of the storage by this process; nil if the hub does not count it
}

// Warnings returns the problems that the health check does not include.
func (n hubNow) Warnings() (all []string) {
	if n.Usage != nil {
		for _, p := range n.Usage.Parts {
			if p.CountsErrors() && p.Lately.Errors > 0 {
				all = append(all, fmt.Sprintf("%d of %d requests to the storage's %s service failed within %s.", p.Lately.Errors, p.Lately.Requests, p.Part, lengthOf(n.Usage.For)))
			}
		}
	}
	if n.Load == nil {
		return all
	}
	for i, owner := range n.Load.ControlQueueOwners {
		if owner == "" && n.Load.ControlQueueLengths[i] > 0 {
			all = append(all, fmt.Sprintf("%d messages wait in partition %d, which has no owner.", n.Load.ControlQueueLengths[i], i))
		}
	}
	return all
}

// A program describes the program that runs.
type program struct{ Path, Version, Revision, Go string }

func showOverview(v *visit) error {
	now, err := currentHub(v)
	if err != nil {
		return err
	}
	return v.page("overview", "Overview", overview{now, v.console.rates.lately(time.Now()), thisProgram(), v.console.began})
}

func showNow(v *visit) error {
	now, err := currentHub(v)
	if err != nil {
		return err
	}
	return v.part("overview", "now", overview{Now: now, Rates: v.console.rates.lately(time.Now()), Began: v.console.began})
}

// currentHub reads the current state of the hub.
func currentHub(v *visit) (hubNow, error) {
	ctx := v.Request().Context()
	n := hubNow{Health: v.console.cfg.API.Health(ctx)}
	load, err := v.console.cfg.API.Scale(ctx)
	if err != nil && !errors.Is(err, durable.ErrNotSupported) && len(n.Health.Reasons) == 0 {
		return n, err
	}
	n.Load = load
	if sole, ok := v.hub.Hub.Hub.(provider.SingleWorker); ok {
		n.IsSingleWorker = sole.IsSingleWorker()
	}
	if reporter, ok := v.hub.Hub.Hub.(provider.UsageReporter); ok {
		if parts := reporter.Usage(); len(parts) > 0 {
			n.Usage = v.console.usage.look(parts, time.Now(), v.console.began)
		}
	}
	return n, nil
}

func thisProgram() program {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return program{}
	}
	p := program{Path: info.Path, Version: info.Main.Version, Go: info.GoVersion}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			p.Revision = s.Value
		}
	}
	return p
}

// maxCounted limits the number of counted instances. A hub may have a million instances, and no store
// keeps their number.
const (
	maxCounted    = 1000
	maxCountPages = 5 // a page may contain few instances
)

// counts holds the number of instances by status and by name.
type counts struct {
	All, Most     int
	More          bool // further instances were not counted
	Unreadable    int
	Statuses      []count
	Names         []count
	OldestPending *durable.InstanceState // of the counted instances; nil if none is pending
}

// A count is the number of instances with a status or name.
type count struct {
	What string
	N    int
}

func showCounts(v *visit) error {
	c := counts{Most: maxCounted}
	statuses, names := map[string]int{}, map[string]int{}
	q := durable.Query{ExcludeEntities: true, PageSize: maxCounted}
	for range maxCountPages {
		page, err := v.hub.Client.ListInstances(v.Request().Context(), q)
		if err != nil {
			return err
		}
		for _, i := range page.Instances {
			statuses[i.Status.String()]++
			names[i.Name]++
			if i.Status == history.Pending && (c.OldestPending == nil || i.CreatedAt.Before(c.OldestPending.CreatedAt)) {
				c.OldestPending = i
			}
		}
		c.All += len(page.Instances)
		c.Unreadable += len(page.Unreadable)
		q.Continuation, q.PageSize = page.Continuation, maxCounted-c.All
		if c.More = q.Continuation != ""; !c.More || q.PageSize <= 0 {
			break
		}
	}
	c.Statuses, c.Names = sorted(statuses), sorted(names)
	return v.part("overview", "counts", c)
}

// sorted returns the counts in descending order.
func sorted(of map[string]int) (all []count) {
	for _, what := range slices.Sorted(maps.Keys(of)) {
		all = append(all, count{what, of[what]})
	}
	slices.SortStableFunc(all, func(a, b count) int { return cmp.Compare(b.N, a.N) })
	return all
}
