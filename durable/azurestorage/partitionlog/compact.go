package partitionlog

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/bloblog"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/runs"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Compact makes the hub as small as possible. It returns the sizes of its blobs before and after,
// in bytes. It writes the changes in each log to the partition's base, merges the base into one
// sorted run of records, and deletes unneeded blobs. If a partition cannot be compacted, the
// others still are. Compact fails with [provider.ErrHubBusy] if a process owns a partition, and
// with [ErrNoHub] if the hub does not exist. Other processes may read the hub meanwhile.
func (h *Hub) Compact(ctx context.Context) (before, after int64, err error) {
	if before, after, err = h.compact(ctx); err != nil {
		err = fmt.Errorf("compact task hub %s: %w", h.cfg.TaskHub, err)
	}
	return before, after, err
}

func (h *Hub) compact(ctx context.Context) (before, after int64, err error) {
	if h.isRunning() {
		return 0, 0, provider.ErrHubBusy
	}
	if _, _, err := h.readInfo(ctx); store.IsNotFound(err) {
		return 0, 0, ErrNoHub
	}
	if err := h.ensure(ctx); err != nil {
		return 0, 0, err
	}
	if before, err = h.size(ctx); err != nil {
		return 0, 0, err
	}
	var failures []error
	for _, s := range h.partitions {
		err := s.compact(ctx)
		if held := (*bloblog.HeldError)(nil); errors.As(err, &held) {
			return before, 0, fmt.Errorf("%w: %w", provider.ErrHubBusy, held)
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("partition %d: %w", s.number, err))
		}
	}
	after, err = h.size(ctx)
	return before, after, errors.Join(append(failures, err)...)
}

// size returns the total size of the hub's blobs, in bytes.
func (h *Hub) size(ctx context.Context) (bytes int64, err error) {
	blobs, _, err := h.blobs.ListInfo(ctx, "")
	for _, b := range blobs {
		bytes += b.Size
	}
	return bytes, err
}

// compact makes a partition without an owner as small as possible.
func (s *partitionHandle) compact(ctx context.Context) (err error) {
	log, left, err := bloblog.Open(ctx, s.logConfig())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close(true)) }()
	config := s.baseConfig()
	config.Commit = log.SetBase
	base, err := runs.Open(ctx, config, left.Manifest)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, base.Close()) }()
	layer, err := layerOf(left.Base, left.Groups)
	if err != nil {
		return err
	}
	for layer.Last = left.Last; layer.Last < left.Last+2; layer.Last++ { // the log keeps the blob before the current one
		log.Rotate()
		if err := log.Append(layer.Last+1, nil); err != nil {
			return err
		}
	}
	if err := base.Write(layer, true); err != nil {
		return err
	}
	if err := base.Compact(ctx); err != nil {
		return err
	}
	named := base.Names()
	return s.sweep(ctx, log, func(there []string) []string {
		return slices.DeleteFunc(there, func(name string) bool { return slices.Contains(named, name) })
	})
}
