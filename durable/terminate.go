package durable

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

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
