// Package instances reads and writes what is stored of the instances of a task hub: their
// histories and their rows, with what is large in blobs. It knows neither sessions, nor
// queues, nor partitions.
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

// Config says where a [Store] keeps what it stores.
type Config struct {
	TaskHub      string // the name of the hub
	HistoryTable *store.Table
	RowTable     *store.Table
	Blobs        *store.Container // for large columns
	// CacheBytes bounds the histories that are remembered.
	CacheBytes int
	// Tolerance is by how much the time of the last update in a row may be behind the
	// last checkpoint.
	Tolerance time.Duration
	// BeginWithin is how long the first write of a history is retried: later, another worker
	// may have had the instance.
	BeginWithin time.Duration
	// Ended is called when the row of an instance says that it has ended. end is its state,
	// nil if that is not all known.
	Ended func(instanceID string, end *provider.InstanceState)
	Log   *slog.Logger
}

// A Store is what is stored of the instances of a task hub, and what this process remembers
// of it.
type Store struct {
	Config
	Histories       *Histories
	Rows            *Rows
	CachedRows      RowCache
	CachedHistories *HistoryCache
}

// New returns the store that c describes.
func New(c Config) *Store {
	s := &Store{Config: c, CachedHistories: newHistoryCache(c.CacheBytes)}
	s.Histories, s.Rows = &Histories{&s.Config}, &Rows{&s.Config}
	return s
}

// LoadFor is Load for a batch of messages that begins with the event
// first. If that starts a child whose ID has another execution, it is what is
// stored of that one, as far as the start has to do with it: one that goes on is
// to refuse the start, and one that has ended may be the same child, which has
// continued as new since.
func (s *Store) LoadFor(ctx context.Context, instanceID, executionID string, first history.Event) (*Instance, error) {
	loaded, err := s.Load(ctx, instanceID, executionID)
	start, isStart := first.(*history.ExecutionStarted)
	if err != nil || !isStart || start.Parent == nil || !loaded.hasOther(executionID) {
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

// Remembered returns what this process remembers of an execution that goes on,
// any if executionID is empty; nil if that is not enough to go on with it.
func (s *Store) Remembered(instanceID, executionID string) *Instance {
	stored, ok := s.CachedHistories.Take(instanceID)
	if !ok || executionID != "" && executionID != stored.ExecutionID {
		return nil
	}
	loaded := &Instance{History: stored, Row: s.CachedRows.Get(instanceID), Unverified: true}
	if loaded.Row == nil || !loaded.goesOn() {
		return nil
	}
	return loaded
}

// Forget drops what this process remembers of an instance.
func (s *Store) Forget(instanceID string) {
	s.CachedHistories.Take(instanceID)
	s.CachedRows.Put(instanceID, nil)
}

// ForgetAll drops what this process remembers of the instances for which which is true.
func (s *Store) ForgetAll(which func(instanceID string) bool) {
	s.CachedHistories.drop(which)
	s.CachedRows.drop(which)
}

// Load reads what is stored of an instance. executionID is the
// execution that is wanted, empty for whichever is current. The row of an
// execution that goes on may be one that this process remembers.
func (s *Store) Load(ctx context.Context, instanceID, executionID string) (*Instance, error) {
	loaded := &Instance{Row: s.CachedRows.Get(instanceID)}
	remembered := loaded.Row != nil
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
		return s.leftOver(ctx, loaded, instanceID, executionID, err)
	}
	if err == nil && remembered && !loaded.goesOn() {
		loaded.Row, err = s.Rows.Read(ctx, instanceID)
	}
	if err != nil {
		return nil, fmt.Errorf("load instance %q: %w", instanceID, err)
	}
	return loaded, nil
}

// leftOver returns the result of Load if a blob is gone that the history names. If the
// row is of another execution, a late request wrote the history of a purged instance
// again. That history does not count, and the next one must match its sentinel. Otherwise
// the history is damaged: that is err.
func (s *Store) leftOver(ctx context.Context, loaded *Instance, instanceID, wanted string, cause error) (_ *Instance, err error) {
	if loaded.Row, err = s.Rows.Read(ctx, instanceID); err != nil {
		return nil, err
	}
	if loaded.Row != nil && !loaded.AwaitsStart() {
		return nil, fmt.Errorf("load instance %q: %w", instanceID, cause)
	}
	s.Log.Warn("history does not count: its instance was purged", "instanceId", instanceID, "executionId", loaded.ExecutionID, "error", cause)
	loaded.History = History{ExecutionID: wanted, Known: NewKnownEvents(), ETag: loaded.ETag}
	return loaded, nil
}

// TerminateUnstarted marks an instance terminated that has not begun.
func (s *Store) TerminateUnstarted(ctx context.Context, instanceID string, stored *Instance, event *history.ExecutionTerminated) error {
	return s.endUnstarted(ctx, instanceID, stored, wire.EncodeEndedBeforeStart(instanceID, history.Terminated, event.Reason, event.Timestamp, time.Now()))
}

// FailUnstarted marks an instance failed whose start message cannot be read any more,
// because the blob that the row and the message name is gone: a late request wrote the
// row of a purged instance again, or the blob was deleted by hand. The row does not name
// it any more, so that it can be read.
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
	now := history.Ticks(time.Now())
	e := wire.EncodeEndedBeforeStart(instanceID, history.Failed, new("it cannot start: "+cause.Error()), now, now)
	e.SetString("Input", wire.JSONNull)
	e.SetString("InputBlobName", "")
	e.SetString("TagsBlobName", "")
	return s.endUnstarted(ctx, instanceID, stored, e)
}

// endUnstarted merges e into the row of an instance that has not started. Its
// start message is discarded when it comes. Before that, the history gets a
// sentinel, or another one, so that no worker begins it any more: the first checkpoint
// of a worker that lost its lease may be on its way. The row must
// be as it was read, since the ID may have been started again if this one was given
// up for dead; .NET writes it in any case.
func (s *Store) endUnstarted(ctx context.Context, instanceID string, stored *Instance, e wire.Row) error {
	defer s.Forget(instanceID)
	sentinel := wire.EncodeSentinel(instanceID, stored.Row.State.Instance.ExecutionID, true, history.Ticks(time.Now()))
	err := store.Retry(ctx, "keep instance "+instanceID+" from starting", func(ctx context.Context) (err error) {
		if stored.ETag == "" {
			_, err = s.HistoryTable.Insert(ctx, sentinel)
		} else {
			_, err = s.HistoryTable.Merge(ctx, sentinel, stored.ETag)
		}
		return err
	})
	if err != nil { // of a conflict, too: the instance has begun, or this is done already
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
		return nil // purged in the meantime
	}
	return err
}

// Repair makes the row of an instance say what its history does, if a crash kept the
// checkpoint from it that took a message which has come again, and no other checkpoint may
// follow for long: who resumes an instance, for instance, first looks whether its row says
// that it is suspended
// (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs,
// UpdateInstanceStatusForCompletedOrchestrationAsync). stored is read
// again if it is nil or of another execution than the current one.
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

// repairRow writes the row of an instance from its whole history, if neither has changed
// since they were read. If one has, the error says so, and the message that came again
// comes once more: the row that was read may be newer than the history, or what changed
// it may be the late write of a worker that knows less than both.
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
	defer s.Forget(instanceID)
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

// Purge deletes what is stored of an instance, as [provider.Purger] says. besides is called
// before the row goes.
func (s *Store) Purge(ctx context.Context, id string, seen *provider.InstanceState, besides func(ctx context.Context, id string) error) error {
	defer s.Forget(id)
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
	if err := besides(ctx, id); err != nil {
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

// changedSince makes a conflict tell what a purge came across.
func changedSince(err error) error {
	if store.IsConflict(err) {
		return fmt.Errorf("it has changed since it was looked at, and not all of it is deleted; look at it, and purge it again if it is to go: %w", err)
	}
	return err
}

// BlobsOf returns the names of the blobs with an instance's large payloads: messages
// are under its ID, history under its key. .NET deletes all whose names begin with
// the ID, which can be those of other instances
// (DurableTask.AzureStorage/MessageManager.cs, DeleteLargeMessageBlobs).
//
// The service takes a backslash in a blob's name for a slash. Large messages to
// an ID with a backslash, which clients refuse, stay behind, since they look
// like those to an ID with a slash.
func (s *Store) BlobsOf(ctx context.Context, id string) ([]string, error) {
	var names []string
	for _, prefix := range []string{id + "/message-", wire.EscapeKey(id) + "/history-"} {
		more, err := s.Blobs.List(ctx, prefix)
		switch {
		case err == nil:
		case ctx.Err() == nil && !isInXML(id):
			s.Log.Warn("large payloads of the instance, if any, stay behind: their blobs cannot be listed", "instanceId", id, "prefix", prefix, "error", err)
		default:
			return nil, err
		}
		names = append(names, more...)
	}
	return names, nil
}

// isInXML reports whether XML can contain all characters of a text
// (https://www.w3.org/TR/xml/#charsets).
func isInXML(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF
	})
}

// UpdateOf returns the update of an instance's row after a checkpoint, which has added
// rows to the history, nil if the row need not be written. leftOut is that of the checkpoint
// before if it was not written, or nil: the row is told of both.
func (s *Store) UpdateOf(l *Instance, cp *provider.Checkpoint, rows []wire.Row, leftOut *RowUpdate) *RowUpdate {
	if l.Row != nil {
		l.rowOf = l.Row.State.Instance.ExecutionID
	}
	u := &RowUpdate{store: s, cp: cp, row: l.Row, before: l.rowOf, sentinel: l.ETag, events: cp.NewEvents, rows: rows, replaced: l.Replaced}
	l.Replaced = nil
	_, changes := statusAfter(cp.NewEvents)
	behind := !changes && l.RowIsBehind()
	if !behind && saysNothingNew(u.row, cp, s.Tolerance) || l.isReplaced(cp) {
		s.CachedRows.Put(cp.Instance.InstanceID, l.Row)
		return nil
	}
	switch {
	case leftOut != nil && leftOut.cp.Instance == cp.Instance && len(leftOut.events)+len(cp.NewEvents) == len(l.Events): // nobody else went on
		u.events, u.rows = slices.Concat(leftOut.events, cp.NewEvents), slices.Concat(leftOut.rows, rows)
	case behind || u.missedStart():
		u.events, u.rows = l.Events, nil
	}
	return u
}
