package instances

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"golang.org/x/sync/errgroup"
)

// Rows reads and writes the rows of instances.
type Rows struct {
	Table   *store.Table
	blobs   *store.Container
	taskHub string // that the rows name
}

// State returns the state of an instance, with its texts that are in blobs.
func (r *Rows) State(ctx context.Context, id string, fetch provider.Fetch) (*provider.InstanceState, error) {
	row, err := r.Fetch(ctx, id, fetch)
	if err != nil {
		return nil, err
	}
	if row == nil {
		return nil, fmt.Errorf("instance %q: %w", id, provider.ErrInstanceNotFound)
	}
	if err := r.Resolve(ctx, row, wire.MaxDecompressed); err != nil {
		return nil, err
	}
	return &row.State, nil
}

// Resolve reads the input and the output of a row that are in blobs, if none is
// longer than limit.
func (r *Rows) Resolve(ctx context.Context, row *wire.InstanceRow, limit int64) error {
	state := &row.State
	if row.InputBlob != "" {
		text, err := r.blobs.ReadUpTo(ctx, row.InputBlob, limit)
		if err != nil {
			return fmt.Errorf("read input of instance %q: %w", state.Instance.InstanceID, err)
		}
		state.Input = new(string(text))
	}
	if row.TagsBlob != "" {
		text, err := r.blobs.ReadUpTo(ctx, row.TagsBlob, limit)
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
		blob, ok := wire.OwnBlobName(r.blobs.URL, state.Instance.InstanceID, **v.field)
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

// readReference returns the value that a blob stands for: that of a start
// message is its input. It fails if the blob's text is longer than limit.
func (r *Rows) readReference(ctx context.Context, blob string, limit int64) (*string, error) {
	text, err := r.blobs.ReadUpTo(ctx, blob, limit)
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

// Page returns a page of instances in the order of their escaped IDs; its size has a bound
// of 1000. Where a page ends is said by the service, or, if it has too many bytes, by
// the key of its last row.
func (r *Rows) Page(ctx context.Context, q provider.Query) (*provider.Page, error) {
	rows := store.Query{
		Filter: instanceFilter(q), Columns: wire.InstanceColumns(q.Fetch), Top: min(max(q.PageSize, 0), store.MaxPageSize),
		Continuation: q.Continuation,
	}
	if last, err := provider.DecodeContinuation(q.Continuation, 1); err == nil {
		rows.Continuation = ""
		rows.Filter = allOf(rows.Filter, "PartitionKey gt '"+store.Doubled(last[0])+"'")
	}
	raw, continuation, err := r.Table.Page(ctx, rows)
	if q.Continuation != "" && store.StatusOf(err) == http.StatusBadRequest {
		err = fmt.Errorf("%w: %w", provider.ErrContinuation, err)
	}
	if err != nil {
		return nil, err
	}
	page := &provider.Page{Continuation: continuation}
	return page, r.fill(ctx, page, raw, q)
}

// fill puts the instances of rows on a page, until it is full. Short blobs are read
// several at a time, long ones one after the other, so that there is never much more in
// memory than a page may have.
func (r *Rows) fill(ctx context.Context, page *provider.Page, raw [][]byte, q provider.Query) error {
	room := q.Room()
	for window := range slices.Chunk(raw, blobsAtOnce) {
		raw = raw[len(window):]
		rows, failures := make([]*wire.InstanceRow, len(window)), make([]error, len(window))
		for i := range window {
			if rows[i], failures[i] = wire.DecodeInstanceRow(window[i]); failures[i] == nil && !q.Matches(&rows[i].State) {
				rows[i] = nil
			}
		}
		short := r.resolveShort(ctx, rows, room.Left()/blobsAtOnce)
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
				room.Take(state)
				page.Instances = append(page.Instances, state)
			}
			if isLast := len(raw) == 0 && i == len(window)-1; room.Left() == 0 && !isLast {
				page.Continuation = provider.EncodeContinuation(partitionKeyOf(window[i]))
				return nil
			}
		}
	}
	return nil
}

// resolveShort returns the states of rows, nil of those that are nil, have a text that is
// longer than limit, or cannot be read.
func (r *Rows) resolveShort(ctx context.Context, rows []*wire.InstanceRow, limit int) []*provider.InstanceState {
	states := make([]*provider.InstanceState, len(rows))
	var group errgroup.Group // whoever reads it again tells what is wrong
	for i, row := range rows {
		if row == nil {
			continue
		}
		group.Go(func() error {
			row := *row // which stays as it is
			if r.Resolve(ctx, &row, int64(limit)) == nil {
				states[i] = &row.State
			}
			return nil
		})
	}
	_ = group.Wait() // no function returns an error
	return states
}

// ResolveOrReadAgain is Resolve for a row of a list. One whose blobs are gone is
// read again: it may have been purged or changed since. It returns nil if q does not
// select the instance now.
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

// PendingSince returns a page of the rows of instances that have been pending since
// before the given time, without those that cannot be decoded.
func (r *Rows) PendingSince(ctx context.Context, before time.Time, continuation string, size int) (rows []*wire.InstanceRow, next string, err error) {
	raw, next, err := r.Table.Page(ctx, store.Query{
		Filter:  statusCondition([]history.RuntimeStatus{history.Pending}) + " and LastUpdatedTime lt " + odataTime(before),
		Columns: wire.InstanceColumns(provider.Fetch{}), Top: size, Continuation: continuation,
	})
	for _, text := range raw {
		if row, err := wire.DecodeInstanceRow(text); err == nil { // else who reads it by its ID is told
			rows = append(rows, row)
		}
	}
	return rows, next, err
}

func statusCondition(statuses []history.RuntimeStatus) string {
	terms := make([]string, len(statuses))
	for i, s := range statuses {
		terms[i] = "RuntimeStatus eq '" + s.String() + "'"
	}
	return strings.Join(terms, " or ")
}

func odataTime(t time.Time) string {
	return "datetime'" + t.UTC().Format("2006-01-02T15:04:05.0000000Z") + "'"
}

// Read returns an instance's row without its input and output, nil
// if there is none.
func (r *Rows) Read(ctx context.Context, instanceID string) (*wire.InstanceRow, error) {
	return r.Fetch(ctx, instanceID, provider.Fetch{})
}

func (r *Rows) Fetch(ctx context.Context, instanceID string, fetch provider.Fetch) (*wire.InstanceRow, error) {
	q := store.Query{
		Filter:  "PartitionKey eq '" + store.Doubled(wire.EscapeKey(instanceID)) + "'",
		Columns: wire.InstanceColumns(fetch),
		Top:     1,
	}
	for {
		rows, continuation, err := r.Table.Page(ctx, q)
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

func (r *Rows) BlobURL(name string) string { return wire.BlobURL(r.blobs.URL, name) }

// Offload puts the large columns of an instance's row into blobs.
func (r *Rows) Offload(ctx context.Context, row *wire.Row) error {
	for _, column := range row.LargeColumns() {
		name := row.ColumnBlobName(column, rand.Uint32())
		if err := r.blobs.Write(ctx, name, []byte(row.Text(column))); err != nil {
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

// withoutBlobs has an instance's row, which may be nil, name no blobs any more, and
// returns it as it is then.
func (r *Rows) withoutBlobs(ctx context.Context, row *wire.InstanceRow) (*wire.InstanceRow, error) {
	for n := 1; row != nil; n++ {
		e := wire.Row{PartitionKey: wire.EscapeKey(row.State.Instance.InstanceID)}
		for _, column := range r.blobColumns(row) {
			e.SetString(column, "")
		}
		if len(e.Properties) == 0 {
			return row, nil
		}
		var etag string
		err := store.Retry(ctx, "let the row of an instance name no blobs", func(ctx context.Context) (err error) {
			etag, err = r.Table.Merge(ctx, e, row.ETag)
			return err
		})
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
		if row != nil && !row.StateOrNil().SameAs(before) { // else an attempt whose answer was lost was our own
			return nil, provider.ErrInstanceChanged
		}
	}
	return nil, nil
}

// blobColumns returns the columns by which a row names blobs.
func (r *Rows) blobColumns(row *wire.InstanceRow) (columns []string) {
	names := func(value *string) bool {
		if value == nil {
			return false
		}
		_, ok := wire.OwnBlobName(r.blobs.URL, row.State.Instance.InstanceID, *value)
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

// MarkRewound makes the row of an instance say that it is pending, if it says
// that the execution has ended. If somebody changes the row at the same time,
// the instance goes on already, or was started anew: the row decides.
func (r *Rows) MarkRewound(ctx context.Context, instance history.OrchestrationInstance) error {
	row, err := r.Read(ctx, instance.InstanceID)
	if err != nil || row == nil {
		return err
	}
	if row.IsReplacing(instance) {
		return provider.ErrInstanceChanged
	}
	if !row.State.Status.IsTerminal() || row.State.Instance.ExecutionID != instance.ExecutionID {
		return nil
	}
	e := wire.EncodeRewound(instance.InstanceID, time.Now())
	err = store.Retry(ctx, "write row of instance "+instance.InstanceID, func(ctx context.Context) error {
		_, err := r.Table.Merge(ctx, e, row.ETag)
		return err
	})
	switch {
	case store.IsNotFound(err):
		return nil
	case store.IsConflict(err):
		return r.MarkRewound(ctx, instance)
	}
	return err
}

// ErrPurged says that the row is gone in whose place another was to be. The blob
// of the start may be gone, too: a purge deletes all that there are before the row.
var ErrPurged = errors.New("the instance was purged meanwhile")

// Create inserts the row of a new instance, or replaces the one that was
// read, and returns the row that is there afterwards: that of another execution
// if somebody was faster.
func (r *Rows) Create(ctx context.Context, event *history.ExecutionStarted, before *wire.InstanceRow, messageBlob string) (*wire.InstanceRow, error) {
	inputURL := ""
	if messageBlob != "" {
		inputURL = r.BlobURL(messageBlob)
	}
	e := wire.EncodeNewInstance(event, r.taskHub, inputURL, time.Now())
	if err := r.Offload(ctx, &e); err != nil {
		return nil, err
	}
	var etag string
	err := store.Retry(ctx, "write row of instance "+event.Instance.InstanceID, func(ctx context.Context) (err error) {
		if before == nil {
			etag, err = r.Table.Insert(ctx, e)
		} else {
			etag, err = r.Table.Replace(ctx, e, before.ETag)
		}
		return err
	})
	switch {
	case err == nil:
		row, err := wire.DecodeInstanceRow(e.JSON())
		if err != nil {
			return nil, err
		}
		row.ETag = etag
		return row, nil
	case !store.IsConflict(err) && !store.IsNotFound(err):
		return nil, err
	}
	// Somebody was faster, or an attempt whose answer was lost was our own.
	row, readErr := r.Read(ctx, event.Instance.InstanceID)
	if readErr != nil {
		return nil, readErr
	}
	switch {
	case row == nil && (before != nil || store.IsConflict(err)):
		return nil, ErrPurged
	case row == nil:
		return nil, err
	}
	return row, nil
}
