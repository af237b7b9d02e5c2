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

// sweepAfter is the time between the acquisition of a partition and the deletion of unneeded base
// files. Processes that read an older manifest have read a newer one by then.
const sweepAfter = 5 * time.Minute

// sweepAll deletes the base files that crashes and former owners left. Files that no recent
// manifest names are deleted at once, so that they do not pile up while the partition changes
// owners often. The others are deleted after sweepAfter, because readers of a recent manifest may
// need them.
func (o *owner) sweepAll(recent []string) {
	_ = o.sweep(o.over, recent) // the next sweep deletes these files, too
	for pause.For(o.over, sweepAfter) {
		err := o.sweep(o.over, nil)
		if err == nil {
			return
		}
		if o.over.Err() == nil {
			o.handle.hub.log.Warn("cannot delete unneeded files of a partition; trying again", "partition", o.handle.number, "in", sweepAfter, "error", err)
		}
	}
}

// namedBy returns the names of all files in the manifests.
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

// idleClientsInterval is the interval at which an owner deletes the records of clients that sent
// nothing for a day. Even a client that makes a single request leaves a record.
const idleClientsInterval = time.Hour

// removeIdleClients removes records at the opening and after each idleClientsInterval. It first receives the
// mail in the mailbox, because that mail may repeat requests of these clients. If it cannot, it removes
// nothing until the next interval.
func (o *owner) removeIdleClients() {
	for since := o.opened; ; since = o.handle.hub.moment() {
		if o.drainSince(o.over, since) == nil {
			o.RemoveIdleClients()
		}
		if !pause.For(o.over, idleClientsInterval) {
			return
		}
	}
}

// sweep deletes the files that the base does not know, except those in keep. It never deletes files
// of a later owner, however late the deletions take effect.
func (o *owner) sweep(ctx context.Context, keep []string) error {
	return o.handle.sweep(ctx, o.log, func(there []string) []string {
		if o.hasEnded() {
			return nil
		}
		return slices.DeleteFunc(o.base.Unneeded(there), func(name string) bool { return slices.Contains(keep, name) })
	})
}

// sweep deletes files of the base. unneeded selects them from the names of all existing files. It
// is called while this process certainly owns the log.
func (s *partitionHandle) sweep(ctx context.Context, log *bloblog.Log, unneeded func(there []string) []string) error {
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
	// A frozen machine does not notice that its lease expired. If the lease can be renewed, no
	// other process owned the partition when the files were listed.
	if err := log.Renew(ctx); err != nil {
		return fmt.Errorf("renew the lease before files are deleted: %w", err)
	}
	for i, name := range names {
		names[i] = prefix + name
	}
	return blobs.RemoveAll(ctx, names)
}
