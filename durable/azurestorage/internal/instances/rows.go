package instances

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Rows reads and writes instance rows.
type Rows struct{ *Config }

// State returns the state of an instance, including values that are stored in blobs. A worker deletes
// the blobs that a row no longer names. If a blob does not exist, State reads the row again until the
// row has not changed.
func (r *Rows) State(ctx context.Context, id string, fetch provider.Fetch) (*provider.InstanceState, error) {
	for n, seen := 1, ""; ; n++ {
		row, err := r.Fetch(ctx, id, fetch)
		if err != nil {
			return nil, err
		}
		if row == nil {
			return nil, fmt.Errorf("instance %q: %w", id, provider.ErrInstanceNotFound)
		}
		err = r.Resolve(ctx, row, wire.MaxDecompressed)
		if err == nil {
			return &row.State, nil
		}
		if !store.IsBlobGone(err) || row.ETag == seen || n == maxRowAttempts {
			return nil, err
		}
		seen = row.ETag
	}
}

// Resolve reads the input, the output and the tags of a row that are stored in blobs. It fails if one
// of them is longer than limit bytes.
func (r *Rows) Resolve(ctx context.Context, row *wire.InstanceRow, limit int64) error {
	state := &row.State
	if row.InputBlob != "" {
		text, err := r.Blobs.ReadUpTo(ctx, row.InputBlob, limit)
		if err != nil {
			return fmt.Errorf("read input of instance %q: %w", state.Instance.InstanceID, err)
		}
		state.Input = new(string(text))
	}
	if row.TagsBlob != "" {
		text, err := r.Blobs.ReadUpTo(ctx, row.TagsBlob, limit)
		if err != nil {
			return fmt.Errorf("read tags of instance %q: %w", state.Instance.InstanceID, err)
		}
		if err := row.DecodeTags(string(text)); err != nil {
			return err
		}
	}
	for _, v := range []struct {
		name  string
		field **string
	}{{"input", &state.Input}, {"output", &state.Output}} {
		if *v.field == nil {
			continue
		}
		blob, ok := wire.OwnBlobName(r.Blobs.URL, state.Instance.InstanceID, **v.field)
		if !ok {
			continue
		}
		text, err := r.readReference(ctx, blob, limit)
		if err != nil {
			return fmt.Errorf("read %s of instance %q: %w", v.name, state.Instance.InstanceID, err)
		}
		*v.field = text
	}
	return nil
}

// readReference returns the value in a blob. If the blob contains a start message, the value is the
// message's input. It fails if the blob is longer than limit bytes.
func (r *Rows) readReference(ctx context.Context, blob string, limit int64) (*string, error) {
	text, err := r.Blobs.ReadUpTo(ctx, blob, limit)
	if err != nil {
		return nil, err
	}
	if !wire.IsStartMessageBlob(blob) {
		return new(string(text)), nil
	}
	env, err := wire.DecodeEnvelopeJSON(text)
	if err != nil {
		return nil, &wire.DamageError{Cause: fmt.Errorf("start message %s: %w", blob, err)}
	}
	if env.Message != nil {
		if start, ok := env.Message.Event.(*history.ExecutionStarted); ok {
			return start.Input, nil
		}
	}
	return nil, &wire.DamageError{Cause: fmt.Errorf("blob %s is not a start message", blob)}
}

// Page returns a page of at most 1,000 instances, ordered by escaped ID. The continuation is the
// service's, or the key of the last row if the page ended because of its size in bytes.
func (r *Rows) Page(ctx context.Context, q provider.Query) (*provider.Page, error) {
	rows := store.Query{
		Filter: instanceFilter(q), Columns: wire.InstanceColumns(q.Fetch), Top: min(max(q.PageSize, 0), store.MaxPageSize),
		Continuation: q.Continuation,
	}
	if last, err := provider.DecodeContinuation(q.Continuation, 1); err == nil {
		rows.Continuation = ""
		rows.Filter = allOf(rows.Filter, "PartitionKey gt '"+store.EscapeOData(last[0])+"'")
	}
	raw, continuation, err := r.RowTable.Page(ctx, rows)
	if q.Continuation != "" && store.StatusOf(err) == http.StatusBadRequest {
		err = fmt.Errorf("%w: %w", provider.ErrContinuation, err)
	}
	if err != nil {
		return nil, err
	}
	page := &provider.Page{Continuation: continuation}
	return page, r.fill(ctx, page, raw, q)
}

// fill adds the instances in rows to a page until it is full. Short blobs are read several at a time
// and long blobs one by one, so memory use stays close to the size of a page.
func (r *Rows) fill(ctx context.Context, page *provider.Page, raw [][]byte, q provider.Query) error {
	room := q.PageBudget()
	for window := range slices.Chunk(raw, blobsAtOnce) {
		raw = raw[len(window):]
		rows, failures := make([]*wire.InstanceRow, len(window)), make([]error, len(window))
		for i := range window {
			if rows[i], failures[i] = wire.DecodeInstanceRow(window[i]); failures[i] == nil && !q.Matches(&rows[i].State) {
				rows[i] = nil
			}
		}
		short := r.resolveShort(ctx, rows, room.Remaining()/blobsAtOnce)
		for i, row := range rows {
			state, err := short[i], failures[i]
			if err == nil && state == nil && row != nil {
				if state, err = r.ResolveOrReadAgain(ctx, row, q); err != nil && !store.IsUnreadable(err) {
					return err
				}
			}
			switch {
			case err != nil:
				page.Unreadable = append(page.Unreadable, provider.UnreadableInstance{InstanceID: wire.UnescapeKey(partitionKeyOf(window[i])), Cause: err})
			case state != nil:
				room.Subtract(state)
				page.Instances = append(page.Instances, state)
			}
			if isLast := len(raw) == 0 && i == len(window)-1; room.Remaining() == 0 && !isLast {
				page.Continuation = provider.EncodeContinuation(partitionKeyOf(window[i]))
				return nil
			}
		}
	}
	return nil
}

// resolveShort returns the states of rows. A state is nil if the row is nil, has a value longer than
// limit bytes, or cannot be read.
func (r *Rows) resolveShort(ctx context.Context, rows []*wire.InstanceRow, limit int) []*provider.InstanceState {
	states := make([]*provider.InstanceState, len(rows))
	_ = store.ForEach(ctx, blobsAtOnce, rows, func(ctx context.Context, i int, row *wire.InstanceRow) error {
		if row != nil {
			row := *row // a copy, because a failed Resolve changes the row
			if r.Resolve(ctx, &row, int64(limit)) == nil {
				states[i] = &row.State
			}
		}
		return nil // ResolveOrReadAgain reports the error
	})
	return states
}

// ResolveOrReadAgain is [Rows.Resolve] for a row of a list. If a blob does not exist, it reads the row
// again, because the instance may have been purged or changed. It returns nil if q no longer selects
// the instance.
func (r *Rows) ResolveOrReadAgain(ctx context.Context, row *wire.InstanceRow, q provider.Query) (*provider.InstanceState, error) {
	err := r.Resolve(ctx, row, wire.MaxDecompressed)
	if !store.IsNotFound(err) {
		return &row.State, err
	}
	state, err := r.State(ctx, row.State.Instance.InstanceID, q.Fetch)
	if errors.Is(err, provider.ErrInstanceNotFound) || err == nil && !q.Matches(state) {
		return nil, nil
	}
	return state, err
}

// write merges e into the known row of an instance, or inserts it if known is nil. A retry after an
// attempt with unknown outcome may conflict with the first attempt's own write. Merging again is
// harmless then.
func (r *Rows) write(ctx context.Context, e wire.Row, known *wire.InstanceRow) (etag string, err error) {
	err = store.Retry(ctx, "write row of instance "+wire.UnescapeKey(e.PartitionKey), func(ctx context.Context) (err error) {
		if known == nil {
			etag, err = r.RowTable.Insert(ctx, e)
		} else {
			etag, err = r.RowTable.Merge(ctx, e, known.ETag)
		}
		return err
	})
	return etag, err
}

// A PendingQuery selects rows of pending instances.
type PendingQuery struct {
	Before time.Time // upper limit of the last update; with Direct, of the time of the direct start
	// Direct selects only instances whose start was delivered in memory.
	Direct bool
}

// pendingColumns are the columns that [Rows.EachPending] reads.
var pendingColumns = []string{
	"PartitionKey", "RowKey", "ExecutionId", "CreatedTime", "LastUpdatedTime", "RuntimeStatus", "ScheduledStartTime", wire.DirectStartColumn,
}

// EachPending calls each for every row that q selects, page by page, until each returns an error. It
// skips rows that cannot be decoded. The rows contain only the columns that a decision about the start
// needs.
func (r *Rows) EachPending(ctx context.Context, q PendingQuery, each func(*wire.InstanceRow) error) error {
	column := "LastUpdatedTime"
	if q.Direct {
		column = wire.DirectStartColumn // rows without it do not match
	}
	filter := statusCondition([]history.RuntimeStatus{history.Pending}) + " and " + column + " lt " + odataTime(q.Before)
	return r.RowTable.All(ctx, store.Query{Filter: filter, Columns: pendingColumns}, func(raw []byte) error {
		row, err := wire.DecodeInstanceRow(raw)
		if err != nil {
			return nil // a read of the instance reports the error
		}
		return each(row)
	})
}

// Read returns the row of an instance without input and output, nil if the instance has no row.
func (r *Rows) Read(ctx context.Context, instanceID string) (*wire.InstanceRow, error) {
	return r.Fetch(ctx, instanceID, provider.Fetch{})
}

// Fetch returns the row of an instance with the selected values, nil if the instance has no row. It
// does not read blobs.
func (r *Rows) Fetch(ctx context.Context, instanceID string, fetch provider.Fetch) (*wire.InstanceRow, error) {
	q := store.Query{
		Filter:  "PartitionKey eq '" + store.EscapeOData(wire.EscapeKey(instanceID)) + "'",
		Columns: wire.InstanceColumns(fetch),
		Top:     1,
	}
	for {
		rows, continuation, err := r.RowTable.Page(ctx, q)
		if err != nil {
			return nil, fmt.Errorf("read row of instance %q: %w", instanceID, err)
		}
		if len(rows) > 0 {
			return wire.DecodeInstanceRow(rows[0])
		}
		if continuation == "" {
			return nil, nil
		}
		q.Continuation = continuation
	}
}

// BlobURL returns the URL of a blob.
func (r *Rows) BlobURL(name string) string { return wire.BlobURL(r.Blobs.URL, name) }

// Offload moves the large columns of an instance row into blobs.
func (r *Rows) Offload(ctx context.Context, row *wire.Row) error {
	for _, column := range row.LargeColumns() {
		name := row.ColumnBlobName(column, rand.Uint32())
		if err := r.Blobs.Write(ctx, name, []byte(row.Text(column))); err != nil {
			return err
		}
		if column == "Input" || column == "Output" {
			row.OffloadAsURL(column, r.BlobURL(name))
		} else {
			row.Offload(column, name)
		}
	}
	return nil
}

// withoutBlobs removes all references to blobs from a row and returns the new row. row may be nil.
func (r *Rows) withoutBlobs(ctx context.Context, row *wire.InstanceRow) (*wire.InstanceRow, error) {
	for n := 1; row != nil; n++ {
		e := wire.Row{PartitionKey: wire.EscapeKey(row.State.Instance.InstanceID)}
		for _, column := range r.blobColumns(row) {
			e.SetString(column, "")
		}
		if len(e.Properties) == 0 {
			return row, nil
		}
		etag, err := r.write(ctx, e, row)
		if err == nil {
			row.ETag = etag
			return row, nil
		}
		if !store.IsConflict(err) || n == maxRowAttempts {
			return nil, err
		}
		before := row.StateOrNil()
		if row, err = r.Fetch(ctx, before.Instance.InstanceID, provider.Fetch{Input: true, Output: true}); err != nil {
			return nil, err
		}
		if row != nil && !row.StateOrNil().SameAs(before) { // otherwise the first attempt succeeded and its response was lost
			return nil, provider.ErrInstanceChanged
		}
	}
	return nil, nil
}

// blobColumns returns the columns of a row that refer to blobs.
func (r *Rows) blobColumns(row *wire.InstanceRow) (columns []string) {
	names := func(value *string) bool {
		if value == nil {
			return false
		}
		_, ok := wire.OwnBlobName(r.Blobs.URL, row.State.Instance.InstanceID, *value)
		return ok
	}
	for _, c := range []struct {
		name string
		is   bool
	}{
		{"Input", names(row.State.Input)},
		{"Input" + wire.BlobNameSuffix, row.InputBlob != ""},
		{"Output", names(row.State.Output)},
		{"Tags" + wire.BlobNameSuffix, row.TagsBlob != ""},
	} {
		if c.is {
			columns = append(columns, c.name)
		}
	}
	return columns
}

// MarkRewound sets the status in the row of an ended execution to Pending. It does nothing if the row
// has another status or execution. If another execution with the ID is pending, the error is
// [provider.ErrInstanceChanged]. If the row changes concurrently, MarkRewound decides again by the new
// row.
func (r *Rows) MarkRewound(ctx context.Context, instance history.OrchestrationInstance) error {
	row, err := r.Read(ctx, instance.InstanceID)
	if err != nil || row == nil {
		return err
	}
	if row.BelongsToOtherPending(instance) {
		return provider.ErrInstanceChanged
	}
	if !row.State.Status.IsTerminal() || row.State.Instance.ExecutionID != instance.ExecutionID {
		return nil
	}
	e := wire.EncodeRewound(instance.InstanceID, time.Now())
	_, err = r.write(ctx, e, row)
	switch {
	case store.IsNotFound(err):
		return nil
	case store.IsConflict(err):
		return r.MarkRewound(ctx, instance)
	}
	return err
}

// ErrPurged means that the row to replace was deleted. The blob of the start message may be deleted
// too, because a purge deletes all blobs before the row.
var ErrPurged = errors.New("the instance was purged meanwhile")

// Create inserts the row of a new instance, or replaces the row before, and returns the row that
// exists afterwards. If another client was faster, that is the row of another execution. made is true
// if this call certainly wrote the row.
func (r *Rows) Create(ctx context.Context, event *history.ExecutionStarted, before *wire.InstanceRow, messageBlob string) (row *wire.InstanceRow, made bool, err error) {
	inputURL := ""
	if messageBlob != "" {
		inputURL = r.BlobURL(messageBlob)
	}
	return r.create(ctx, event, before, wire.EncodeNewInstance(event, r.TaskHub, inputURL, time.Now()))
}

// CreateDirect is [Rows.Create] for a start that is delivered in memory. The row records that.
func (r *Rows) CreateDirect(ctx context.Context, event *history.ExecutionStarted) (row *wire.InstanceRow, made bool, err error) {
	now := time.Now()
	e := wire.EncodeNewInstance(event, r.TaskHub, "", now)
	e.SetTime(wire.DirectStartColumn, now)
	return r.create(ctx, event, nil, e)
}

func (r *Rows) create(ctx context.Context, event *history.ExecutionStarted, before *wire.InstanceRow, e wire.Row) (row *wire.InstanceRow, made bool, err error) {
	if err := r.Offload(ctx, &e); err != nil {
		return nil, false, err
	}
	var etag string
	err = store.Retry(ctx, "write row of instance "+event.Instance.InstanceID, func(ctx context.Context) (err error) {
		if before == nil {
			etag, err = r.RowTable.Insert(ctx, e)
		} else {
			etag, err = r.RowTable.Replace(ctx, e, before.ETag)
		}
		return err
	})
	switch {
	case err == nil:
		row, err := wire.DecodeInstanceRow(e.JSON())
		if err != nil {
			return nil, false, err
		}
		row.ETag = etag
		return row, true, nil
	case !store.IsConflict(err) && !store.IsNotFound(err):
		return nil, false, err
	}
	// Another client was faster, or the response to a successful attempt was lost.
	row, readErr := r.Read(ctx, event.Instance.InstanceID)
	if readErr != nil {
		return nil, false, readErr
	}
	switch {
	case row == nil && (before != nil || store.IsConflict(err)):
		return nil, false, ErrPurged
	case row == nil:
		return nil, false, err
	}
	return row, false, nil
}

// partitionKeyOf returns the partition key of a row that may otherwise be invalid, "" if it has no
// key.
func partitionKeyOf(raw []byte) string {
	var key struct{ PartitionKey string }
	if err := json.Unmarshal(raw, &key); err != nil {
		return ""
	}
	return key.PartitionKey
}
