package durable

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A PurgeOption changes what [Client.Purge] and [Client.PurgeMany] do.
// [Recursive] is one.
type PurgeOption interface{ applyPurge(*purgeOptions) }

type purgeOptions struct{ recursive bool }

func purgeOptionsOf(opts []PurgeOption) (o purgeOptions) {
	for _, opt := range opts {
		opt.applyPurge(&o)
	}
	return o
}

// A PurgeResult says what a purge removed.
type PurgeResult struct {
	Instances int // with their children
	// Unreadable is how many instances [Client.PurgeMany] left alone since what is
	// stored of them cannot be read. Whether the filter selects them is not known.
	Unreadable int
}

// A PurgeFilter selects instances to purge. Conditions that are set must all
// hold. Whatever it says, only instances that have ended are purged.
type PurgeFilter struct {
	CreatedFrom time.Time // zero: no bound
	CreatedTo   time.Time
	Statuses    []history.RuntimeStatus // empty: any in which an instance has ended
	IDPrefix    string
	Name        string // of the orchestrator; empty: any
}

// Purges at a time, and the errors that the result of many lists.
const (
	purgesAtOnce   = 10
	maxPurgeErrors = 10
)

// purgeTally counts what purges came to.
type purgeTally struct {
	mu        sync.Mutex // protects the following
	instances int
	errs      []error // the first of them
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

// purge purges instances that match a query, for a client.
type purge struct {
	*Client
	options  purgeOptions
	matching *provider.Query
}

// run purges an instance, and its descendants if the options say so, children before
// their parents so that they can be found again. It returns how many it purged: none
// if the instance does not match the query now.
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
		root = nil // it can go, whatever becomes of it meanwhile
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
					err = now // as if it had changed before it was looked at
				}
				return purged, err
			case !errors.Is(err, ErrInstanceNotFound) || len(generations) == 1:
				return purged, err
			}
		}
	}
	return purged, nil
}

// ended returns what is known of an instance, and an error if it has not ended. An
// entity never does, and can be purged all the same (the extension's
// HttpApiHandler.cs, HandleDeleteHistoryByIdRequestAsync).
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

// endedFamily returns an instance and its descendants, by generation. All of
// them have ended, as seen, which has the instance, says of each.
func (p *purge) endedFamily(ctx context.Context, root InstanceID, seen map[InstanceID]*provider.InstanceState) ([][]InstanceID, error) {
	generations := [][]InstanceID{{root}}
	for {
		var next []InstanceID
		for _, parent := range generations[len(generations)-1] {
			f, err := familyOf(ctx, p.hub, parent)
			if err != nil {
				return nil, err
			}
			for i, child := range slices.Concat(f.children, f.unborn) {
				if _, again := seen[child]; again {
					continue
				}
				s, err := p.ended(ctx, child)
				isUnborn := i >= len(f.children)
				if isUnborn && (errors.Is(err, ErrInstanceNotFound) || errors.As(err, new(*InstanceStateError))) {
					continue
				}
				// A purge that was interrupted leaves a history without a state, or the state of
				// an ended instance without a history.
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
