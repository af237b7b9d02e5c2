package partitionlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/bloblog"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/runs"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/chance"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/partition"
)

// follower reads a partition of another process from its base and log.
type follower struct {
	handle *partitionHandle
	busy   chan struct{} // held while the log is read
	view   *followed     // nil until the log was read
}

// followed is a partition's state as read by a follower.
type followed struct {
	log    *bloblog.Reader
	base   *runs.Base
	store  *logstore.Store
	reader *partition.Reader
	groups []bloblog.Frame // groups after the base
	asked  time.Time       // start of the last read of the log
	forget *time.Timer
}

// keepFor is the time after the last read until a follower discards the state.
const keepFor = time.Minute

// read calls see with a reader of everything that was durable when read was called.
func (f *follower) read(ctx context.Context, see func(*partition.Reader) error) error {
	since := time.Now()
	for attempt := 1; ; attempt++ {
		v, err := f.current(ctx, since)
		if err != nil {
			return err
		}
		err = see(v.reader)
		if !errors.Is(err, runs.ErrGone) {
			return err
		}
		if attempt == 5 {
			return &UnreadableError{f.handle.number, err}
		}
		f.drop(v) // files of the base were deleted
	}
}

// turn names a resource of a partition that callers share, for [chance.AwaitTurn].
type turn struct {
	resource  string
	partition int
}

func (t turn) String() string { return fmt.Sprint(t.resource, " ", t.partition) }

func (f *follower) lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case f.busy <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// current returns the partition's state as of since or later. Callers that arrive during a read of
// the log share the next read.
func (f *follower) current(ctx context.Context, since time.Time) (*followed, error) {
	chance.AwaitTurn(ctx, turn{"follow", f.handle.number}, nil)
	if err := f.lock(ctx); err != nil {
		return nil, err
	}
	defer func() { <-f.busy }()
	if f.view != nil && f.view.asked.After(since) {
		return f.view, nil
	}
	asked := time.Now()
	if f.view != nil {
		err := f.view.follow(ctx)
		if err != nil && !errors.Is(err, bloblog.ErrReopen) {
			return nil, err
		}
		if err != nil {
			f.view = nil
		}
	}
	if f.view == nil {
		v, err := f.handle.follow(ctx)
		if err != nil {
			return nil, err
		}
		v.forget = time.AfterFunc(keepFor, func() { f.drop(v) })
		f.view = v
	}
	f.view.asked = asked
	f.view.forget.Reset(keepFor)
	return f.view, nil
}

// drop discards a state if it is still the current one.
func (f *follower) drop(v *followed) {
	f.busy <- struct{}{}
	defer func() { <-f.busy }()
	v.forget.Stop()
	if f.view == v {
		f.view = nil
	}
}

// follow opens a reader of the partition's log.
func (s *partitionHandle) follow(ctx context.Context) (*followed, error) {
	return s.followLog(ctx, s.logConfig())
}

func (s *partitionHandle) followLog(ctx context.Context, cfg bloblog.Config) (*followed, error) {
	log, left, err := bloblog.OpenReader(ctx, cfg)
	if err != nil {
		return nil, err
	}
	base, err := runs.Open(ctx, s.baseConfig(), left.Manifest)
	if err != nil {
		return nil, fmt.Errorf("read partition %d: %w", s.number, err)
	}
	v := &followed{log: log, base: base, groups: left.Groups}
	layer, err := layerOf(left.Base, v.groups)
	if err != nil {
		return nil, err
	}
	v.store = logstore.New(base, nil, layer, s.hub.log)
	v.reader = partition.NewReader(v.store, s.readerConfig())
	return v, nil
}

// layerOf returns a layer with groups, which follow group base.
func layerOf(base uint64, groups []bloblog.Frame) (*logstore.Layer, error) {
	layer := logstore.NewLayer(partition.MailTables, base)
	for _, g := range groups {
		if err := layer.Replay(g.Number, g.Changes); err != nil {
			return nil, err
		}
	}
	return layer, nil
}

// follow reads the groups and manifests appended since the last read. After an error in them, the log must be
// reopened, because it returns them only once.
func (v *followed) follow(ctx context.Context) error {
	frames, err := v.log.Next(ctx)
	if err != nil {
		return err
	}
	for _, f := range frames {
		if f.Manifest != nil {
			v.groups = slices.DeleteFunc(v.groups, func(g bloblog.Frame) bool { return g.Number <= f.Number })
			if err := v.base.Rebase(f.Manifest); err != nil {
				return errors.Join(bloblog.ErrReopen, err)
			}
			layer, err := layerOf(f.Number, v.groups)
			if err != nil {
				return errors.Join(bloblog.ErrReopen, err)
			}
			v.store.Replace(layer)
			continue
		}
		v.groups = append(v.groups, f)
		if err := v.store.Replay(f.Number, f.Changes); err != nil {
			return errors.Join(bloblog.ErrReopen, err)
		}
	}
	return nil
}
