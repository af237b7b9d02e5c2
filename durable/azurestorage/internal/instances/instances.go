// Package instances reads and writes the stored state of a task hub's instances: histories and
// instance rows, with large values in blobs. It does not depend on sessions, queues or partitions.
//
// The history table decides. A checkpoint appends its events to the history in a transaction that also
// changes the sentinel, a row with one ETag for the whole history. The instance row follows later and
// is written from the history. If a worker crashes in between, the next checkpoint or [Store.Repair]
// updates the row.
package instances

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"golang.org/x/sync/errgroup"
)

// Config contains the storage and the limits of a [Store].
type Config struct {
	TaskHub      string // name of the hub
	HistoryTable *store.Table
	RowTable     *store.Table
	Blobs        *store.Container // for large columns
	// CacheBytes is the maximum size of the history cache.
	CacheBytes int
	// Tolerance is the maximum age of the last update time in a row, relative to the last checkpoint.
	// A negative value disables lazy updates.
	Tolerance time.Duration
	// FirstWriteTimeout limits the retries of the first write of a history. After this time, another
	// worker may have owned the instance.
	FirstWriteTimeout time.Duration
	// Ended is called after the row of an ended instance was written. end is the instance's final
	// state, nil if parts of it are unknown.
	Ended func(instanceID string, end *provider.InstanceState)
	Log   *slog.Logger
}

// A Store reads and writes the instances of a task hub and caches some of them.
type Store struct {
	Config
	Histories       *Histories
	Rows            *Rows
	CachedRows      RowCache
	CachedHistories *HistoryCache
}

// New returns a store with the configuration c.
func New(c Config) *Store {
	s := &Store{Config: c, CachedHistories: newHistoryCache(c.CacheBytes)}
	s.Histories, s.Rows = &Histories{&s.Config}, &Rows{&s.Config}
	return s
}

// LoadFor is [Store.Load] for a batch of messages whose first event is first. If first starts a child
// and another execution with the child's ID exists, LoadFor may return that execution. A running one
// must refuse the start. An ended one may be a later generation of the same child.
func (s *Store) LoadFor(ctx context.Context, instanceID, executionID string, first history.Event) (*Instance, error) {
	loaded, err := s.Load(ctx, instanceID, executionID)
	start, isStart := first.(*history.ExecutionStarted)
	if err != nil || !isStart || start.Parent == nil || !loaded.mayHaveOtherExecution(executionID) {
		return loaded, err
	}
	current, err := s.Load(ctx, instanceID, "")
	if err != nil {
		return nil, err
	}
	if current.Known.Started && (current.Known.Ended == nil || start.IsSameChild(history.StartOf(current.Events))) {
		return current, nil
	}
	return loaded, nil
}

// Cached returns the cached state of a running execution; an empty executionID means any
// execution. It returns nil if the history or the row is not cached.
func (s *Store) Cached(instanceID, executionID string) *Instance {
	stored, ok := s.CachedHistories.Take(instanceID)
	if !ok || executionID != "" && executionID != stored.ExecutionID {
		return nil
	}
	row := s.CachedRows.Get(instanceID)
	loaded := &Instance{History: stored, Row: row, cachedRow: row, Unverified: true}
	if loaded.Row == nil || !loaded.isRunning() {
		return nil
	}
	return loaded
}

// UseLaterRow replaces the row of a loaded instance if this process has written the row of the same
// execution since then. The next update would otherwise start from an outdated row.
func (s *Store) UseLaterRow(l *Instance, instanceID string) {
	row := s.CachedRows.Get(instanceID)
	if row != nil && row != l.cachedRow && row.State.Instance.ExecutionID == l.ExecutionID {
		l.Row = row
	}
}

// Evict removes an instance from the caches.
func (s *Store) Evict(instanceID string) {
	s.CachedHistories.Take(instanceID)
	s.CachedRows.Put(instanceID, nil)
}

// EvictAll removes the matching instances from the caches.
func (s *Store) EvictAll(matches func(instanceID string) bool) {
	s.CachedHistories.evict(matches)
	s.CachedRows.evict(matches)
}

// Load reads the stored state of an instance. executionID is the wanted execution, empty for the
// current one. The row of a running execution may come from the cache.
func (s *Store) Load(ctx context.Context, instanceID, executionID string) (*Instance, error) {
	row := s.CachedRows.Get(instanceID)
	loaded := &Instance{Row: row, cachedRow: row}
	remembered := row != nil
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		loaded.History, err = s.Histories.Load(groupCtx, instanceID, executionID)
		return err
	})
	if !remembered {
		group.Go(func() (err error) {
			loaded.Row, err = s.Rows.Read(groupCtx, instanceID)
			return err
		})
	}
	err := group.Wait()
	if store.IsBlobGone(err) {
		return s.loadWithoutHistory(ctx, loaded, instanceID, executionID, err)
	}
	if err == nil && remembered && !loaded.isRunning() {
		loaded.Row, err = s.Rows.Read(ctx, instanceID)
	}
	if err != nil {
		return nil, fmt.Errorf("load instance %q: %w", instanceID, err)
	}
	return loaded, nil
}

// loadWithoutHistory returns the result of Load if a blob of the history does not exist. If the row is
// missing or awaits a start, a late request has written the history of a purged instance again. That
// history is ignored, and the next checkpoint must match its sentinel. Otherwise the history is
// damaged, and the error is cause.
func (s *Store) loadWithoutHistory(ctx context.Context, loaded *Instance, instanceID, wanted string, cause error) (_ *Instance, err error) {
	if loaded.Row, err = s.Rows.Read(ctx, instanceID); err != nil {
		return nil, err
	}
	if loaded.Row != nil && !loaded.AwaitsStart() {
		return nil, fmt.Errorf("load instance %q: %w", instanceID, cause)
	}
	s.Log.Warn("ignoring a history: its instance was purged", "instanceId", instanceID, "executionId", loaded.ExecutionID, "error", cause)
	loaded.History = History{ExecutionID: wanted, Known: NewKnownEvents(), ETag: loaded.ETag}
	return loaded, nil
}

// TerminateUnstarted marks a pending instance as terminated.
func (s *Store) TerminateUnstarted(ctx context.Context, instanceID string, stored *Instance, event *history.ExecutionTerminated) error {
	return s.endUnstarted(ctx, instanceID, stored, wire.EncodeEndedBeforeStart(instanceID, history.Terminated, event.Reason, event.Timestamp, time.Now()))
}

// FailUnstarted marks a pending instance as failed because its start message is unreadable: the blob
// of the message does not exist. A late request wrote the row of a purged instance again, or the blob
// was deleted by hand. The row no longer refers to the blob afterwards, so that clients can read it.
func (s *Store) FailUnstarted(ctx context.Context, pending history.OrchestrationInstance, cause error) error {
	instanceID := pending.InstanceID
	stored, err := s.Load(ctx, instanceID, pending.ExecutionID)
	switch {
	case err != nil || stored.Known.Started || stored.HasContinued(pending.ExecutionID):
		return err
	case stored.Row == nil || stored.Row.State.Instance != pending || stored.Row.State.Status != history.Pending:
		return nil
	}
	s.Log.Error("instance cannot start", "instanceId", instanceID, "executionId", pending.ExecutionID, "error", cause)
	now := history.TruncateToTicks(time.Now())
	e := wire.EncodeEndedBeforeStart(instanceID, history.Failed, new("it cannot start: "+cause.Error()), now, now)
	e.SetString("Input", wire.JSONNull)
	e.SetString("InputBlobName", "")
	e.SetString("TagsBlobName", "")
	return s.endUnstarted(ctx, instanceID, stored, e)
}

// endUnstarted merges e into the row of a pending instance. First it writes the sentinel of the
// history, so that the first checkpoint of a worker that lost its lease cannot succeed. A start
// message that arrives later is discarded. The row must be unchanged, because a client may have
// started the ID again; .NET does not check this.
func (s *Store) endUnstarted(ctx context.Context, instanceID string, stored *Instance, e wire.Row) error {
	defer s.Evict(instanceID)
	sentinel := wire.EncodeSentinel(instanceID, stored.Row.State.Instance.ExecutionID, true, history.TruncateToTicks(time.Now()))
	err := store.Retry(ctx, "keep instance "+instanceID+" from starting", func(ctx context.Context) (err error) {
		if stored.ETag == "" {
			_, err = s.HistoryTable.Insert(ctx, sentinel)
		} else {
			_, err = s.HistoryTable.Merge(ctx, sentinel, stored.ETag)
		}
		return err
	})
	if err != nil { // in a conflict, the instance has started or has been ended already
		return err
	}
	if err := s.Rows.Offload(ctx, &e); err != nil {
		return err
	}
	_, err = s.Rows.write(ctx, e, stored.Row)
	switch {
	case err == nil:
		s.Ended(instanceID, nil)
	case store.IsNotFound(err):
		return nil // it was purged meanwhile
	}
	return err
}

// Repair updates the row of an instance from its history, if a crash has prevented a checkpoint from
// doing so. The worker calls it for a redelivered message, because the next checkpoint may be far away
// and clients use the row: Resume first checks whether it says Suspended
// (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs,
// UpdateInstanceStatusForCompletedOrchestrationAsync). If stored is nil or not the current execution,
// Repair reads the instance.
func (s *Store) Repair(ctx context.Context, instanceID string, stored *Instance) (err error) {
	if stored == nil || stored.ETag != "" && stored.ExecutionID != stored.Current.ExecutionID {
		if stored, err = s.Load(ctx, instanceID, ""); err != nil {
			return err
		}
	}
	if history.IsEntity(instanceID) || !stored.RowIsBehind() {
		return nil
	}
	s.Log.Info("instance row repaired", "instanceId", instanceID, "executionId", stored.ExecutionID, "status", stored.Known.Status.String())
	return s.repairRow(ctx, instanceID, stored)
}

// repairRow writes the row of an instance from its whole history. It fails with a conflict if the
// history or the row has changed since they were read, and the message is redelivered. A changed row
// may be newer than the history, or a late write of a worker with older data.
func (s *Store) repairRow(ctx context.Context, instanceID string, stored *Instance) error {
	rows, err := s.Histories.Encode(ctx, instanceID, stored.ExecutionID, 0, stored.Events)
	if err != nil {
		return err
	}
	var customStatus *string
	if stored.Row != nil {
		customStatus = stored.Row.State.CustomStatus
	}
	e := wire.EncodeInstanceCheckpoint(wire.InstanceCheckpoint{
		Instance: history.OrchestrationInstance{InstanceID: instanceID, ExecutionID: stored.ExecutionID},
		TaskHub:  s.TaskHub, Events: stored.Events, Rows: rows, BlobURL: s.Rows.BlobURL, CustomStatus: customStatus, Now: stored.Events[len(stored.Events)-1].Head().Timestamp,
	})
	defer s.Evict(instanceID)
	sentinel, err := s.Histories.SentinelETag(ctx, instanceID)
	if err == nil && sentinel != stored.ETag {
		err = fmt.Errorf("history of %q has changed: %w", instanceID, provider.ErrSessionLost)
	}
	if err != nil {
		return err
	}
	_, err = s.Rows.write(ctx, e, stored.Row)
	return err
}

// Purge deletes an instance as [provider.Purger] specifies. It calls beforeRow before it
// deletes the row.
func (s *Store) Purge(ctx context.Context, id string, seen *provider.InstanceState, beforeRow func(ctx context.Context, id string) error) error {
	defer s.Evict(id)
	blobs, err := s.BlobsOf(ctx, id)
	if err != nil {
		return err
	}
	past, err := s.Histories.Versions(ctx, id)
	if err != nil {
		return err
	}
	row, err := s.Rows.Fetch(ctx, id, provider.Fetch{Input: true, Output: true})
	if err != nil {
		return err
	}
	if row == nil && len(past) == 0 {
		return provider.ErrInstanceNotFound
	}
	if seen != nil && !row.StateOrNil().SameAs(seen) {
		return provider.ErrInstanceChanged
	}
	if err := s.Histories.Remove(ctx, id, past); err != nil {
		return changedSince(err)
	}
	if row, err = s.Rows.withoutBlobs(ctx, row); err != nil {
		return changedSince(err)
	}
	if err := s.Blobs.RemoveAll(ctx, blobs); err != nil {
		return err
	}
	if err := beforeRow(ctx, id); err != nil {
		return err
	}
	if row == nil {
		return nil
	}
	err = s.RowTable.RemoveRow(ctx, wire.Row{PartitionKey: wire.EscapeKey(id)}, row.ETag)
	if err == nil {
		s.Log.Info("instance purged", "instanceId", id, "executionId", row.State.Instance.ExecutionID, "rows", len(past)+1)
	}
	return changedSince(err)
}

// changedSince explains a conflict during a purge.
func changedSince(err error) error {
	if store.IsConflict(err) {
		return fmt.Errorf("the instance changed during the purge and is partly deleted; check it and purge it again: %w", err)
	}
	return err
}

// BlobsOf returns the names of the blobs with an instance's large payloads. Names of messages start
// with its ID, names of history columns with its key. .NET deletes all blobs whose names start with
// the ID, which may belong to other instances (DurableTask.AzureStorage/MessageManager.cs,
// DeleteLargeMessageBlobs).
//
// The service treats a backslash in a blob name as a slash. Large messages to an ID with a backslash
// are therefore not listed: they look like messages to an ID with a slash. Clients reject such IDs.
func (s *Store) BlobsOf(ctx context.Context, id string) ([]string, error) {
	var names []string
	for _, prefix := range []string{id + "/message-", wire.EscapeKey(id) + "/history-"} {
		more, err := s.Blobs.List(ctx, prefix)
		switch {
		case err == nil:
		case ctx.Err() == nil && !isInXML(id):
			s.Log.Warn("cannot list the blobs with the instance's large payloads; any such blobs are not deleted", "instanceId", id, "prefix", prefix, "error", err)
		default:
			return nil, err
		}
		names = append(names, more...)
	}
	return names, nil
}

// isInXML reports whether XML can represent all characters of a text
// (https://www.w3.org/TR/xml/#charsets).
func isInXML(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF
	})
}

// RowUpdateFor returns the row update for a checkpoint that has appended rows to the history, nil if the
// row needs no update. leftOut is the unwritten update of the previous checkpoint, or nil. The new
// update then includes it.
func (s *Store) RowUpdateFor(l *Instance, cp *provider.Checkpoint, rows []wire.Row, leftOut *RowUpdate) *RowUpdate {
	if l.Row != nil {
		l.rowOf = l.Row.State.Instance.ExecutionID
	}
	if cp.KeepCustomStatus && leftOut != nil && leftOut.cp.Instance == cp.Instance { // the row lacks the last status
		cp = new(*cp)
		cp.CustomStatus, cp.KeepCustomStatus = leftOut.cp.CustomStatus, leftOut.cp.KeepCustomStatus
	}
	u := &RowUpdate{store: s, cp: cp, row: l.Row, before: l.rowOf, sentinel: l.ETag, events: cp.NewEvents, rows: rows, replaced: l.Replaced}
	l.Replaced = nil
	_, changes := statusAfter(cp.NewEvents)
	behind := !changes && l.RowIsBehind()
	if !behind && isRowCurrent(u.row, cp, s.Tolerance) || l.isReplaced(cp) {
		s.CachedRows.Put(cp.Instance.InstanceID, l.Row)
		return nil
	}
	switch {
	case leftOut != nil && leftOut.cp.Instance == cp.Instance && len(leftOut.events)+len(cp.NewEvents) == len(l.Events): // no other writer
		u.events, u.rows = slices.Concat(leftOut.events, cp.NewEvents), slices.Concat(leftOut.rows, rows)
	case behind || u.rowMissesStart():
		u.events, u.rows = l.Events, nil
	}
	return u
}
