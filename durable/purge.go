package durable

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"golang.org/x/sync/errgroup"
)

// TerminateOption configures [Client.Terminate]. [Recursive] implements it.
type TerminateOption interface{ applyTerminate(*terminateOptions) }

type terminateOptions struct{ recursive bool }

// Recursive includes all descendants of an instance, except the children that an
// instance started before it last continued as new.
//
// Applies to: [Client.Terminate], [Client.Purge], [Client.PurgeMany].
const Recursive = recursiveOption(true)

type recursiveOption bool

func (r recursiveOption) applyTerminate(o *terminateOptions) { o.recursive = bool(r) }
func (r recursiveOption) applyPurge(o *purgeOptions)         { o.recursive = bool(r) }

// maxConcurrentFamilies is the maximum number of instances whose children are processed
// concurrently.
const maxConcurrentFamilies = 10

// terminateFamily terminates an instance and its descendants, generation by generation.
func terminateFamily(ctx context.Context, c *Client, root InstanceID, reason string) error {
	rootErr := c.terminate(ctx, root, reason)
	if rootErr != nil && !errors.Is(rootErr, ErrInstanceEnded) {
		return rootErr
	}
	var terminated atomic.Bool
	terminated.Store(rootErr == nil)
	for generation := []InstanceID{root}; len(generation) > 0; {
		families := make([][]InstanceID, len(generation))
		group, groupCtx := errgroup.WithContext(ctx)
		group.SetLimit(maxConcurrentFamilies)
		for i, parent := range generation {
			group.Go(func() error {
				children, err := childrenAfterEnd(groupCtx, c.hub, parent)
				if err != nil {
					return fmt.Errorf("children of instance %s: %w", parent, err)
				}
				for _, child := range children {
					switch err := c.terminate(groupCtx, child, reason); {
					case err == nil:
						terminated.Store(true)
					case !errors.Is(err, ErrInstanceEnded) && !errors.Is(err, ErrInstanceNotFound):
						return fmt.Errorf("child %s: %w", child, err)
					}
				}
				families[i] = children
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		generation = nil
		for _, children := range families {
			generation = append(generation, children...)
		}
	}
	if !terminated.Load() {
		return rootErr
	}
	return nil
}

// childStartTimeout is the time that a child gets to start after its parent has ended.
// After that it is assumed to be purged.
const childStartTimeout = 5 * time.Second

// childrenAfterEnd waits until an instance has ended and its children have started, and
// returns the children.
func childrenAfterEnd(ctx context.Context, hub provider.Client, id InstanceID) ([]InstanceID, error) {
	var waited time.Duration // since the instance ended
	for interval := waitIntervalMin; ; interval = min(interval*3/2, waitIntervalMax) {
		s, err := hub.Instance(ctx, string(id), provider.Fetch{})
		switch {
		case errors.Is(err, ErrInstanceNotFound):
			return nil, nil // purged in the meantime
		case err != nil:
			return nil, err
		case s.Status.IsTerminal():
			f, err := familyOf(ctx, hub, id)
			if err != nil || len(f.unstarted) == 0 || waited >= childStartTimeout {
				return f.children, err
			}
			waited += interval
		}
		if !pause.For(ctx, interval) {
			return nil, fmt.Errorf("wait for the instance to end: %w", context.Cause(ctx))
		}
	}
}

// PurgeOption configures [Client.Purge] and [Client.PurgeMany]. [Recursive] implements
// it.
type PurgeOption interface{ applyPurge(*purgeOptions) }

type purgeOptions struct{ recursive bool }

func purgeOptionsOf(opts []PurgeOption) (o purgeOptions) {
	for _, opt := range opts {
		opt.applyPurge(&o)
	}
	return o
}

// PurgeResult reports what a purge removed.
type PurgeResult struct {
	Instances int // removed instances, including children
	// Unreadable is the number of instances that [Client.PurgeMany] skipped because
	// their stored data cannot be read. They may or may not match the filter.
	Unreadable int
}

// PurgeFilter selects instances to purge. An instance must match all conditions that
// are set, and must have ended.
type PurgeFilter struct {
	CreatedFrom time.Time       // inclusive; zero means no limit
	CreatedTo   time.Time       // inclusive; zero means no limit
	Statuses    []RuntimeStatus // empty means every status of an ended instance
	IDPrefix    string          // empty means any
	Name        string          // name of the orchestrator; empty means any
}

// Limits of the concurrent purges and of the errors that PurgeMany returns.
const (
	maxConcurrentPurges = 10
	maxPurgeErrors      = 10
)

// purgeMany implements [Client.PurgeMany].
func purgeMany(ctx context.Context, c *Client, filter PurgeFilter, opts purgeOptions) (PurgeResult, error) {
	ended := []history.RuntimeStatus{history.Completed, history.Failed, history.Canceled, history.Terminated}
	statuses := slices.DeleteFunc(ended, func(s history.RuntimeStatus) bool {
		return len(filter.Statuses) > 0 && !slices.Contains(filter.Statuses, s)
	})
	if len(statuses) == 0 {
		return PurgeResult{}, nil
	}
	var tally purgeTally
	var group errgroup.Group // without a context: an error must not stop the other purges
	group.SetLimit(maxConcurrentPurges)
	query := provider.Query{
		CreatedFrom: filter.CreatedFrom, CreatedTo: filter.CreatedTo, Statuses: statuses,
		IDPrefix: filter.IDPrefix, Name: filter.Name,
	}
	p := &purge{c, opts, &query}
	var listErr error
	unreadable := 0
	for page, err := range c.pages(ctx, query) {
		if err != nil {
			listErr = err
			break
		}
		unreadable += len(page.Unreadable)
		for _, s := range page.Instances {
			id := InstanceID(s.Instance.InstanceID)
			group.Go(func() error {
				n, err := p.run(ctx, id)
				tally.add(id, n, err)
				return nil
			})
		}
	}
	_ = group.Wait() // the tally has the errors
	return PurgeResult{Instances: tally.instances, Unreadable: unreadable}, tally.error(listErr)
}

// purgeTally sums up the results of purges.
type purgeTally struct {
	mu        sync.Mutex // guards the fields below
	instances int
	errs      []error // the first maxPurgeErrors errors
	failed    int
}

func (t *purgeTally) add(id InstanceID, n int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.instances += n
	if err == nil || errors.Is(err, ErrInstanceNotFound) {
		return
	}
	if t.failed++; t.failed <= maxPurgeErrors {
		t.errs = append(t.errs, fmt.Errorf("instance %s: %w", id, err))
	}
}

func (t *purgeTally) error(listErr error) error {
	err := errors.Join(append(t.errs, listErr)...)
	switch {
	case err == nil:
		return nil
	case t.failed > maxPurgeErrors:
		return fmt.Errorf("purge instances: %d failed, the first of them: %w", t.failed, err)
	default:
		return fmt.Errorf("purge instances: %w", err)
	}
}

// purge purges instances that match a query.
type purge struct {
	*Client
	options  purgeOptions
	matching *provider.Query
}

// run purges an instance and, if requested, its descendants. It purges children before
// their parents, so an interrupted purge can find them again. It returns the number of
// purged instances, 0 if the instance no longer matches the query.
func (p *purge) run(ctx context.Context, id InstanceID) (purged int, err error) {
	purger, ok := p.hub.(provider.Purger)
	root, err := p.ended(ctx, id)
	switch {
	case err != nil:
		return 0, err
	case !ok:
		return 0, ErrNotSupported
	case !p.matching.Matches(root):
		return 0, nil
	case history.IsEntity(string(id)):
		root = nil // purge an entity even if it changes meanwhile
	}
	generations, seen := [][]InstanceID{{id}}, map[InstanceID]*provider.InstanceState{id: root}
	if p.options.recursive {
		if generations, err = p.endedFamily(ctx, id, seen); err != nil {
			return 0, err
		}
	}
	for _, generation := range slices.Backward(generations) {
		for _, id := range generation {
			switch err := purger.Purge(ctx, string(id), seen[id]); {
			case err == nil:
				purged++
			case errors.Is(err, provider.ErrInstanceChanged):
				if _, now := p.ended(ctx, id); now != nil {
					err = now // report the new status
				}
				return purged, err
			case !errors.Is(err, ErrInstanceNotFound) || len(generations) == 1:
				return purged, err
			}
		}
	}
	return purged, nil
}

// ended returns the state of an instance, or an error if the instance has not ended.
// Entities never end but can be purged (the extension's HttpApiHandler.cs,
// HandleDeleteHistoryByIdRequestAsync).
func (p *purge) ended(ctx context.Context, id InstanceID) (*provider.InstanceState, error) {
	s, err := p.instance(ctx, id, provider.Fetch{})
	switch {
	case err != nil:
		return nil, err
	case !s.Status.IsTerminal() && !history.IsEntity(string(id)):
		return nil, &InstanceStateError{InstanceID: id, Operation: OperationPurge, Status: s.Status}
	}
	return s, nil
}

// endedFamily returns an instance and its descendants by generation. It fails if one of
// them has not ended. It adds their states to seen, which must contain the root.
func (p *purge) endedFamily(ctx context.Context, root InstanceID, seen map[InstanceID]*provider.InstanceState) ([][]InstanceID, error) {
	generations := [][]InstanceID{{root}}
	for {
		var next []InstanceID
		for _, parent := range generations[len(generations)-1] {
			f, err := familyOf(ctx, p.hub, parent)
			if err != nil {
				return nil, err
			}
			for i, child := range slices.Concat(f.children, f.unstarted) {
				if _, again := seen[child]; again {
					continue
				}
				s, err := p.ended(ctx, child)
				isUnstarted := i >= len(f.children)
				if isUnstarted && (errors.Is(err, ErrInstanceNotFound) || errors.As(err, new(*InstanceStateError))) {
					continue
				}
				// An interrupted purge leaves a history without a state, or the state of an
				// ended instance without a history.
				if errors.Is(err, ErrInstanceNotFound) {
					s, err = new(provider.InstanceState), nil
				}
				if err != nil {
					return nil, err
				}
				seen[child] = s
				next = append(next, child)
			}
		}
		if len(next) == 0 {
			return generations, nil
		}
		generations = append(generations, next)
	}
}

// family lists the children that the current execution of an instance has started,
// including children that have ended. It excludes an ID that the instance requested for
// a child if another instance has that ID.
type family struct {
	children []InstanceID
	// unstarted lists children without stored records: they have not started, or were
	// purged.
	unstarted []InstanceID
}

func familyOf(ctx context.Context, hub provider.Client, parent InstanceID) (family, error) {
	events, err := hub.History(ctx, string(parent))
	if err != nil {
		return family{}, err
	}
	var f family
	var start *history.ExecutionStarted
	seen := map[string]bool{}
	for _, e := range events {
		switch e := e.(type) {
		case *history.ExecutionStarted:
			start = e
		case *history.SubOrchestrationInstanceCreated:
			if start == nil || seen[e.InstanceID] {
				continue
			}
			seen[e.InstanceID] = true
			if err := f.add(ctx, hub, e.InstanceID, start.Instance); err != nil {
				return family{}, fmt.Errorf("child %s: %w", e.InstanceID, err)
			}
		}
	}
	return f, nil
}

// add adds an instance to f if the parent started its current execution, or may still
// start it.
func (f *family) add(ctx context.Context, hub provider.Client, id string, parent history.OrchestrationInstance) error {
	events, err := hub.History(ctx, id)
	if err != nil {
		return err
	}
	for _, e := range events {
		if start, ok := e.(*history.ExecutionStarted); ok {
			if start.Parent != nil && start.Parent.Instance == parent {
				f.children = append(f.children, InstanceID(id))
			}
			return nil
		}
	}
	f.unstarted = append(f.unstarted, InstanceID(id))
	return nil
}
