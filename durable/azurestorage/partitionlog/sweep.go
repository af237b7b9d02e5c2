package partitionlog

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
)

// sweepAfter is how long after a partition was taken files are deleted that its base does
// not need: those who have read an older manifest have read a newer one by then.
const sweepAfter = 5 * time.Minute

// sweepLater deletes the files of the base that crashes and former owners left.
func (o *owner) sweepLater() {
	if !pause.For(o.over, sweepAfter) {
		return
	}
	if err := o.sweep(o.over); err != nil && o.over.Err() == nil {
		o.share.hub.log.Warn("cannot delete files that a partition does not need; its next owner tries again", "partition", o.share.number, "error", err)
	}
}

// forgetClientsEvery is the interval at which an owner forgets clients that sent nothing for
// long: each client that calls once leaves a record.
const forgetClientsEvery = time.Hour

func (o *owner) forgetClients() {
	for pause.For(o.over, forgetClientsEvery) {
		o.ForgetClients()
	}
}

// sweep deletes the files that are there while the partition certainly belongs to this
// process, and that its base does not know. However late that happens, no file of a
// later owner is among them.
func (o *owner) sweep(ctx context.Context) error {
	blobs, prefix := o.share.hub.blobs, o.share.prefix
	files, _, err := blobs.ListInfo(ctx, prefix+"base-")
	if err != nil || o.isOver() { // looked at after the list
		return err
	}
	var there []string
	for _, f := range files {
		there = append(there, strings.TrimPrefix(f.Name, prefix))
	}
	unneeded := o.base.Unneeded(there)
	if len(unneeded) == 0 {
		return nil
	}
	// A paused machine does not notice that the lease ran out. If the lease can be renewed, no
	// other process owned the partition when the files were listed.
	if err := o.log.Renew(ctx); err != nil {
		return fmt.Errorf("renew the lease before files are deleted: %w", err)
	}
	for i, name := range unneeded {
		unneeded[i] = prefix + name
	}
	return blobs.RemoveAll(ctx, unneeded)
}
