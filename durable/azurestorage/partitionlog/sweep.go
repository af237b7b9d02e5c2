package partitionlog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/bloblog"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/runs"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
)

// sweepAfter is how long after a partition was taken files are deleted that its base does
// not need: those who have read an older manifest have read a newer one by then.
const sweepAfter = 5 * time.Minute

// sweepAll deletes the files of the base that crashes and former owners left. It deletes files
// that no recent manifest names at once, so they do not pile up while the partition often
// changes hands. It deletes the others later, since readers of a recent manifest may need them.
func (o *owner) sweepAll(recent []string) {
	_ = o.sweep(o.over, recent) // the next sweep deletes these files, too
	for pause.For(o.over, sweepAfter) {
		err := o.sweep(o.over, nil)
		if err == nil {
			return
		}
		if o.over.Err() == nil {
			o.share.hub.log.Warn("cannot delete files that a partition does not need; trying again", "partition", o.share.number, "in", sweepAfter, "error", err)
		}
	}
}

// namedBy returns the names of the files that any of the manifests names.
func namedBy(manifests [][]byte) (all []string, err error) {
	for _, manifest := range manifests {
		names, err := runs.Names(manifest)
		if err != nil {
			return nil, err
		}
		all = append(all, names...)
	}
	return all, nil
}

// forgetClientsEvery is the interval at which an owner forgets clients that sent nothing for
// long: each client that calls once leaves a record.
const forgetClientsEvery = time.Hour

func (o *owner) forgetClients() {
	for pause.For(o.over, forgetClientsEvery) {
		o.ForgetClients()
	}
}

// sweep deletes the files that the base does not know, except some. No file of a later owner is
// among them, however late the deletions happen.
func (o *owner) sweep(ctx context.Context, keep []string) error {
	return o.share.sweep(ctx, o.log, func(there []string) []string {
		if o.isOver() {
			return nil
		}
		return slices.DeleteFunc(o.base.Unneeded(there), func(name string) bool { return slices.Contains(keep, name) })
	})
}

// sweep deletes files of the base. unneeded selects them from the names of all files that exist
// while the partition certainly belongs to the owner of the log.
func (s *share) sweep(ctx context.Context, log *bloblog.Log, unneeded func(there []string) []string) error {
	blobs, prefix := s.hub.blobs, s.prefix
	files, _, err := blobs.ListInfo(ctx, prefix+"base-")
	if err != nil {
		return err
	}
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimPrefix(f.Name, prefix))
	}
	if names = unneeded(names); len(names) == 0 {
		return nil
	}
	// A paused machine does not notice that the lease ran out. If the lease can be renewed, no
	// other process owned the partition when the files were listed.
	if err := log.Renew(ctx); err != nil {
		return fmt.Errorf("renew the lease before files are deleted: %w", err)
	}
	for i, name := range names {
		names[i] = prefix + name
	}
	return blobs.RemoveAll(ctx, names)
}
