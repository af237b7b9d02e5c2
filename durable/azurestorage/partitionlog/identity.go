package partitionlog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/bloblog"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/mailbox"
	"github.com/google/uuid"
)

// formatVersion is the version of a hub's layout.
const formatVersion = 1

// hubInfo is the content of hub.json.
type hubInfo struct {
	Format     int    `json:"format"`
	Partitions int    `json:"partitions"`
	ID         string `json:"id"`
	// Chains is the progress of creating the partitions' logs and mailboxes. It is empty in hubs of
	// older versions, where the first users create them.
	Chains creation `json:"chains,omitempty"`
}

// creation is the progress of a creation.
type creation string

const (
	creating creation = "creating"
	created  creation = "created"
)

var infoName = wire.HubNames{}.PartitionLogInfoBlob()

const workersPrefix = "workers/" // of blobs with heartbeats

// ensure creates the hub if it does not exist, and reads hub.json. Calls after a success do
// nothing.
func (h *Hub) ensure(ctx context.Context) error {
	if err := h.deleted(); err != nil {
		return err
	}
	if h.ready.Load() {
		return nil
	}
	select {
	case h.creation <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-h.life.Done():
		return ErrClosed
	}
	defer func() { <-h.creation }()
	if h.ready.Load() {
		return nil
	}
	info, err := h.create(ctx)
	if err != nil {
		return fmt.Errorf("open task hub %s: %w", h.cfg.TaskHub, err)
	}
	h.id, h.chains = info.ID, info.Chains
	h.ready.Store(true)
	return nil
}

// warnOfQueues logs a warning if the account has a hub of the same name in queues and tables. An
// app whose storage type was changed by mistake would see an empty hub.
func (h *Hub) warnOfQueues(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	if _, err := h.queues.ReadPart(ctx, wire.NewHubNames(h.cfg.TaskHub).AppLeaseInfoBlob(), 0, 0); err == nil { // else it does not exist, or the request failed
		h.log.Warn("the storage account also has a task hub of this name in queues and tables; this app does not see its instances. "+
			"Set storageProvider.type to azureStorage to use that hub, copy it with `hub copy azurestorage partitionlog`, or delete it",
			"container", h.queues.Name)
	}
}

// DeletedError is the error of a hub that was deleted while this process used it. The process
// writes nothing to a hub that replaces it and cannot use the [Hub] any longer.
type DeletedError struct {
	TaskHub string
	// Replaced means that another hub of this name exists now.
	Replaced bool
}

// Error names the hub and the required action.
func (e *DeletedError) Error() string {
	if e.Replaced {
		return fmt.Sprintf("task hub %s was deleted and created again while this process used it; restart the process to use the new hub", e.TaskHub)
	}
	return fmt.Sprintf("task hub %s was deleted while this process used it; restart the process to create the hub again", e.TaskHub)
}

// confirm reads hub.json again. If the container no longer holds the hub that this process has
// used, confirm ends the use of the hub and returns a *[DeletedError].
func (h *Hub) confirm(ctx context.Context) error {
	info, _, err := h.readInfo(ctx)
	switch {
	case store.IsContainerMissing(err):
		err = &DeletedError{TaskHub: h.cfg.TaskHub}
		h.end(err)
	case store.IsNotFound(err):
		err = fmt.Errorf("blob %s of container %s is missing; restore it, run `hub repair`, or delete the task hub", infoName, h.blobs.Name)
	case err == nil && info.ID != h.id:
		err = &DeletedError{TaskHub: h.cfg.TaskHub, Replaced: true}
		h.end(err)
	}
	return err
}

// deleted returns a *[DeletedError] if the hub was found to be deleted, else nil.
func (h *Hub) deleted() error {
	if err, deleted := errors.AsType[*DeletedError](context.Cause(h.life)); deleted {
		return err
	}
	return nil
}

// create reads hub.json, and creates the hub if the container is empty. Any number of processes may
// call it concurrently. One of them creates hub.json, and each continues an unfinished creation.
func (h *Hub) create(ctx context.Context) (hubInfo, error) {
	for {
		info, etag, err := h.readInfo(ctx)
		switch {
		case store.IsNotFound(err):
			err = h.createInfo(ctx)
		case err == nil && info.Partitions != h.cfg.PartitionCount:
			return info, &azurestorage.PartitionCountError{TaskHub: h.cfg.TaskHub, Configured: h.cfg.PartitionCount, Existing: info.Partitions}
		case err == nil && info.Chains == creating:
			err = h.createChains(ctx, info, etag)
		case err == nil:
			return info, nil
		}
		if err != nil {
			return info, err
		}
	}
}

// createInfo creates hub.json unless it exists. It refuses a container with records of partitions or
// with blobs that do not belong to a task hub.
func (h *Hub) createInfo(ctx context.Context) error {
	if err := h.blobs.Create(ctx); err != nil {
		return err
	}
	blobs, _, err := h.blobs.ListInfo(ctx, "")
	if err != nil {
		return err
	}
	if cause := obstacle(blobs); cause != nil {
		return &FormatError{h.blobs.Name, cause}
	}
	return h.writeInfo(ctx, hubInfo{Format: formatVersion, Partitions: h.cfg.PartitionCount, ID: uuid.NewString(), Chains: creating})
}

// writeInfo creates hub.json unless it exists.
func (h *Hub) writeInfo(ctx context.Context, info hubInfo) error {
	content, err := json.Marshal(info)
	if err != nil {
		return err
	}
	return h.blobs.CreateBlob(ctx, infoName, content)
}

// ownBlob matches the names of blobs and folders of a task hub.
var ownBlob = regexp.MustCompile(`^(p\d\d|workers)(/|$)|^(` + infoName + `|` + oldRoster + `)$`)

// partBlob matches the names of blobs with the records of a partition.
var partBlob = regexp.MustCompile(`^p\d\d/(log|mail|base)-`)

// obstacle returns the reason why no hub can be created in a container with these blobs, or nil.
// Empty blobs, letters and heartbeats are no obstacle: processes of a deleted hub may have left
// them.
func obstacle(blobs []store.BlobInfo) error {
	for _, b := range blobs {
		switch {
		case b.Name == infoName: // another process has created it
			return nil
		case !ownBlob.MatchString(b.Name):
			return fmt.Errorf("it holds %s, which is not a blob of a task hub; choose another name for the hub", b.Name)
		case b.Size > 0 && partBlob.MatchString(b.Name):
			return fmt.Errorf("%s is missing, and %s has records; restore %[1]s, run `hub repair`, or delete the task hub", infoName, b.Name)
		}
	}
	return nil
}

// createChains creates the empty logs and mailboxes of a new hub. A log or mailbox that is missing
// later is therefore known to be lost.
func (h *Hub) createChains(ctx context.Context, info hubInfo, etag string) error {
	confirm := func(ctx context.Context) error {
		now, _, err := h.readInfo(ctx)
		if err == nil && now.ID != info.ID {
			err = errors.New("another process has deleted the hub and created it again")
		}
		return err
	}
	err := store.ForEach(ctx, createsAtOnce, h.partitions, func(ctx context.Context, _ int, s *partitionHandle) error {
		log, mail := s.logConfig(), s.mailConfig()
		log.Hub, log.Confirm, mail.Hub, mail.Confirm = info.ID, confirm, info.ID, confirm
		if err := bloblog.Create(ctx, log); err != nil {
			return err
		}
		return mailbox.Create(ctx, mail)
	})
	if err != nil {
		return err
	}
	info.Chains = created
	content, err := json.Marshal(info)
	if err != nil {
		return err
	}
	return store.Ignore(h.blobs.ReplaceBlob(ctx, infoName, content, etag), http.StatusPreconditionFailed) // another process did so
}

const createsAtOnce = 16

// missingLog returns nil if the partition's log was never created, else an error.
func (s *partitionHandle) missingLog(ctx context.Context) error {
	if err := s.hub.confirm(ctx); err != nil {
		return err
	}
	var blobs []store.BlobInfo
	if s.hub.chains != created {
		var err error
		if blobs, _, err = s.hub.blobs.ListInfo(ctx, s.prefix); err != nil {
			return err
		}
	}
	if s.hadLog(blobs) {
		return &chain.DamageError{Blob: s.prefix + "log-", Cause: errors.New("all blobs of the log are missing")}
	}
	return nil
}

// hadLog reports whether the partition certainly had a log at some time. blobs lists the blobs of
// the hub or the partition; it is not needed if the log was created with the hub.
func (s *partitionHandle) hadLog(blobs []store.BlobInfo) bool {
	return s.hub.chains == created || wasUsed(blobs, s.prefix)
}

// wasUsed reports whether the blobs of a partition show that it had a log: base files exist, or an
// owner has deleted the first mailbox blob. Mail alone can arrive before the first owner.
func wasUsed(blobs []store.BlobInfo, prefix string) bool {
	first := uint64(0)
	for _, b := range blobs {
		name, is := strings.CutPrefix(b.Name, prefix)
		if is && strings.HasPrefix(name, "base-") {
			return true
		}
		if number, is := strings.CutPrefix(name, "mail-"); is && first == 0 {
			first, _ = strconv.ParseUint(number, 10, 64)
		}
	}
	return first > 1
}

// readInfo returns the content of hub.json and its ETag.
func (h *Hub) readInfo(ctx context.Context) (info hubInfo, etag string, err error) {
	part, err := h.blobs.ReadPart(ctx, infoName, 0, 1<<16)
	if err != nil {
		return info, "", err
	}
	decoder := json.NewDecoder(bytes.NewReader(part.Content))
	if err := decoder.Decode(&info); err != nil {
		return info, "", &FormatError{h.blobs.Name, fmt.Errorf("%s: %w", infoName, err)}
	}
	if info.Format != formatVersion || info.ID == "" {
		return info, "", &FormatError{h.blobs.Name, fmt.Errorf("its format is version %d; this program knows version %d", info.Format, formatVersion)}
	}
	return info, part.ETag, nil
}

// oldRoster is the name of a blob that older versions wrote when partitions changed their owners.
const oldRoster = "roster"
