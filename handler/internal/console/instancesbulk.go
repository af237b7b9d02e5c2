package console

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/secrets"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
	"golang.org/x/sync/errgroup"
)

// A bulk is an action on many instances. The page holds its complete state and requests one step after
// another. Leaving the page therefore stops it, the process keeps nothing, and any process of the app
// can run the next step.
type bulk struct {
	Action string
	How    actionOptions

	IDs    []string   // the remaining selected instances; nil if a filter selects them
	Filter listFilter // used if IDs is nil
	// Until is the latest creation time of the instances, so that restarted instances are not restarted
	// again. Zero means no limit.
	Until        time.Time
	Continuation string

	Total   int  // number of instances in the preview
	IsCut   bool // the preview did not count all instances
	Done    int
	Skipped int // instances in an unsuitable status, or deleted
	Failed  int
	Errors  []string // the first maxBulkErrors
	Ended   bool
}

// Limits of bulk actions.
const (
	bulkStep        = 100 // instances per step
	bulkConcurrency = 10
	maxBulkErrors   = 5
	countTime       = 2 * time.Second // time limit of a preview, and of a step that finds no matching instance
	countPage       = 500
	previewIDs      = 10
)

// Seen returns the number of processed instances.
func (b *bulk) Seen() int { return b.Done + b.Skipped + b.Failed }

// State encodes the bulk, for the request of the next step.
func (b *bulk) State() (string, error) {
	text, err := json.Marshal(b)
	return string(text), err
}

// query returns the query for the next instances. It returns ok = false if no instance can match.
func (b *bulk) query(a *action, size int) (q durable.Query, ok bool, err error) {
	if q, err = b.Filter.query(b.Continuation); err != nil {
		return q, false, err
	}
	q.PageSize = size
	asked := q.Statuses
	q.Statuses = slices.DeleteFunc(slices.Clone(a.Statuses), func(s history.RuntimeStatus) bool {
		return len(asked) > 0 && !slices.Contains(asked, s)
	})
	if !b.Until.IsZero() && (q.CreatedTo.IsZero() || q.CreatedTo.After(b.Until)) {
		q.CreatedTo = b.Until
	}
	return q, len(q.Statuses) > 0, nil
}

// count counts the instances that the filter selects, for at most countTime. It returns the IDs of the
// first ones.
func (b *bulk) count(ctx context.Context, c *durable.Client, a *action) (first []string, err error) {
	if b.IDs != nil {
		b.Total = len(b.IDs)
		return b.IDs[:min(len(b.IDs), previewIDs)], nil
	}
	q, ok, err := b.query(a, countPage)
	for began := time.Now(); ok && err == nil; {
		var page *durable.Page
		if page, err = c.ListInstances(ctx, q); err != nil {
			break
		}
		for _, s := range page.Instances {
			if !b.Filter.matches(s) {
				continue
			}
			if b.Total++; len(first) < previewIDs {
				first = append(first, s.Instance.InstanceID)
			}
		}
		q.Continuation = page.Continuation
		b.IsCut = q.Continuation != "" && time.Since(began) > countTime
		ok = q.Continuation != "" && !b.IsCut
	}
	return first, err
}

// step performs the action on the next instances. After an error, call it again to continue.
func (b *bulk) step(ctx context.Context, c *durable.Client, a *action) error {
	ids, err := b.next(ctx, c, a)
	if err != nil {
		return err
	}
	var mu sync.Mutex // guards b
	var group errgroup.Group
	group.SetLimit(bulkConcurrency)
	if a.Name == "terminate" && b.How.Option {
		group.SetLimit(bulkStep) // familyTime then limits the step, not each of several rounds
	}
	for _, id := range ids {
		group.Go(func() error {
			_, err := a.run(ctx, c, durable.InstanceID(id), b.How)
			mu.Lock()
			defer mu.Unlock()
			b.tally(id, err)
			return nil
		})
	}
	return group.Wait()
}

// next removes the instances of the next step from the remaining ones and returns their IDs. It reads
// pages until an instance matches, for at most countTime.
func (b *bulk) next(ctx context.Context, c *durable.Client, a *action) (ids []string, err error) {
	if b.IDs != nil {
		n := min(len(b.IDs), bulkStep)
		ids, b.IDs = b.IDs[:n], b.IDs[n:]
		b.Ended = len(b.IDs) == 0
		return ids, nil
	}
	q, ok, err := b.query(a, bulkStep)
	if err != nil || !ok {
		b.Ended = err == nil
		return nil, err
	}
	for began := time.Now(); len(ids) == 0 && !b.Ended && time.Since(began) <= countTime; {
		page, err := c.ListInstances(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, s := range page.Instances {
			if b.Filter.matches(s) {
				ids = append(ids, s.Instance.InstanceID)
			}
		}
		b.Continuation, q.Continuation = page.Continuation, page.Continuation
		b.Ended = page.Continuation == ""
	}
	return ids, nil
}

// tally counts the result for one instance.
func (b *bulk) tally(id string, err error) {
	_, inOther := errors.AsType[*durable.InstanceStateError](err)
	switch {
	case err == nil:
		b.Done++
	case inOther, errors.Is(err, durable.ErrInstanceNotFound):
		b.Skipped++
	default:
		if b.Failed++; len(b.Errors) < maxBulkErrors {
			b.Errors = append(b.Errors, id+": "+secrets.Line(err))
		}
	}
}

// A bulkView is the data of the pages of a bulk action.
type bulkView struct {
	*bulk
	Doing            *action
	First            []string
	Preview, Stopped bool
	Problem          string // the error that has stopped the action; "" if none has
	Back             string // query of the list
}

// Step returns the largest number of instances per step.
func (b bulkView) Step() int { return bulkStep }

// CountTime returns the time limit of a preview.
func (b bulkView) CountTime() string { return lengthOf(countTime) }

// previewBulk answers POST instances/preview with the number of instances that an action applies to.
func previewBulk(v *visit) error {
	a, err := actionNamed(v.value("action"))
	if err != nil {
		return err
	}
	b := &bulk{Action: a.Name, Filter: filterOf(v.form)}
	if v.value("scope") != "filter" {
		if b.IDs = v.form["id"]; len(b.IDs) == 0 {
			return web.BadRequest("No instance is selected. Select instances, or choose all matching instances.")
		}
	}
	if a.Name == "restart" {
		b.Until = time.Now().UTC()
	}
	first, err := b.count(v.Request().Context(), v.hub.Client, a)
	if err != nil {
		return err
	}
	return v.page("instancesbulk", a.Title()+" instances", bulkView{bulk: b, Doing: a, First: first, Preview: true, Back: b.Filter.Values().Encode()})
}

// runBulk answers POST instances/run. It shows the page that requests the steps, or runs one step. If the
// step fails, the answer contains the progress so far, and the user can continue.
func runBulk(v *visit) error {
	b := new(bulk)
	if err := json.Unmarshal([]byte(v.value("state")), b); err != nil {
		return web.BadRequest("The form cannot be read: %v.", err)
	}
	a, err := actionNamed(b.Action)
	if err != nil {
		return err
	}
	if v.value("confirmed") != "" {
		b.How = actionOptions{v.value("reason"), v.value("option") != ""}
	}
	view := bulkView{bulk: b, Doing: a, Stopped: v.value("stop") != "", Back: b.Filter.Values().Encode()}
	if v.isPart() || v.value("step") != "" {
		if err := b.step(v.Request().Context(), v.hub.Client, a); err != nil {
			v.status, view.Problem = v.report(err)
		}
	}
	if v.isPart() {
		return v.part("instancesbulk", "progress", view)
	}
	return v.page("instancesbulk", a.Title()+" instances", view)
}
