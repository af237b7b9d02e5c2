package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/tracing"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// An entityRun runs the batches of one entity.
type entityRun struct {
	instanceID string
	code       EntityCode
	settings   entity.Settings
	now        func() time.Time
	newID      func() string
	log        *slog.Logger // with the name of the entity
	ids        *slog.Logger // without it; nil if logCommitted is not called
	watchdog   *watchdog    // nil in an [EntityStepper]
	label      string       // of the goroutines that run operations
	traced     *tracing.Entity
	// stopping reports whether the worker is stopping.
	stopping func() bool

	settled *settled
	start   *history.ExecutionStarted // of the last checkpoint; nil before the first
	state   *entity.State             // nil before it is read, and while a batch is running

	// For the log of a committed batch.
	ran      int    // number of operations
	lockedBy string // holder of the lock before the batch
}

// findEntity returns the code of the entity with the given instance ID.
func findEntity(functions Functions, instanceID string) (EntityCode, error) {
	id, err := entity.ParseID(instanceID)
	if err != nil {
		return nil, err
	}
	if f, ok := functions.(EntityFunctions); ok {
		if code, ok := f.Entity(id.Name); ok {
			return code, nil
		}
	}
	return nil, &unknownFunctionError{kind: "entity", name: id.Name}
}

// runMessages runs the operations that messages request, and returns the checkpoint with their
// results (DurableTask.Core/TaskEntityDispatcher.cs, OnProcessWorkItemAsync). Past is the
// history of the last checkpoint; only the first call reads it. If io ends, runMessages returns
// although an operation is still running.
func (e *entityRun) runMessages(work, io context.Context, past []history.Event, messages []provider.TaskMessage) (*provider.Checkpoint, error) {
	events := make([]history.Event, len(messages))
	for i, m := range messages {
		events[i] = m.Event
	}
	if e.state == nil {
		if e.start = history.StartOf(past); e.start == nil {
			e.start = history.StartOf(events)
		}
		var input *string
		if e.start != nil {
			input = e.start.Input
		}
		var err error
		if e.state, err = entity.DecodeState(input); err != nil {
			return nil, err
		}
		// A history of DurableTask usually contains no events, but it may.
		events = append(raisedIn(past), events...)
	}
	state := e.state
	e.state = nil // stays nil if the batch fails
	if e.settled.has(e.instanceID, e.execution()) {
		state.Settle()
	}
	settings := e.settings
	settings.Resend = e.isRecent()
	e.ran, e.lockedBy = 0, state.Status().LockedBy
	e.traced.Discard() // discard the spans of a batch that was not committed
	batch, problems := entity.Begin(e.instanceID, state, events, history.TruncateToTicks(e.now()), settings)
	for _, problem := range problems {
		e.log.Warn("discarded an undecodable message to an entity", "error", problem)
	}
	if err := e.run(work, io, batch); err != nil {
		return nil, err
	}
	cp := e.checkpoint(state, batch.Finish(e.execution()), batch.HasDuplicates())
	cp.HideUntilDeleted = cp.SendLast && batch.HasPassedOnLocks()
	e.state = state
	return cp, nil
}

// resendTime is the time after a checkpoint during which a worker sends its outbox again if it
// does not know whether the outbox was sent. Half of the reorder window applies instead if that
// is shorter. Receivers still recognize duplicates during this time. Later the outbox is sent
// again only if messages that the checkpoint took are redelivered, because these are deleted
// after the outbox is sent.
const resendTime = 10 * time.Minute

// isRecent reports whether to send the outbox of the last checkpoint again.
func (e *entityRun) isRecent() bool {
	within := resendTime
	if w := e.settings.Window; w > 0 {
		within = min(within, w/2)
	}
	return e.start != nil && e.now().Sub(e.start.Timestamp) < within
}

// execution returns the entity's execution ID, or "" before its first checkpoint.
func (e *entityRun) execution() string {
	if e.start == nil {
		return ""
	}
	return e.start.Instance.ExecutionID
}

// size returns the approximate size of the entity in memory, in bytes.
func (e *entityRun) size() int {
	if e.start == nil || e.start.Input == nil {
		return 0
	}
	return len(*e.start.Input)
}

func raisedIn(past []history.Event) []history.Event {
	var raised []history.Event
	for _, e := range past {
		if e, ok := e.(*history.EventRaised); ok {
			raised = append(raised, e)
		}
	}
	return raised
}

// run runs the operations of a batch on a goroutine of their own. After an operation that called
// runtime.Goexit, another goroutine runs the rest. If io ends, run returns an error, and the
// goroutine continues.
func (e *entityRun) run(work, io context.Context, batch *entity.Batch) error {
	if _, any := batch.Next(); !any {
		return nil
	}
	ended := make(chan struct{})
	var runRest func()
	runRest = func() { // may outlive this call if io ends
		defer func() {
			if _, more := batch.Next(); more { // an operation called runtime.Goexit
				go runRest()
				return
			}
			close(ended)
		}()
		e.runAll(work, batch)
	}
	go runRest()
	select {
	case <-ended:
		return nil
	case <-io.Done():
		return fmt.Errorf("%w and an operation of the entity did not end", errStopping)
	}
}

// errEntityGoexit is the failure of an operation that called runtime.Goexit.
var errEntityGoexit = errors.New("an operation of the entity ended its goroutine with runtime.Goexit instead of returning")

// runAll runs operations until the batch has no more, or until one calls runtime.Goexit.
func (e *entityRun) runAll(work context.Context, batch *entity.Batch) {
	for op, more := batch.Next(); more; op, more = batch.Next() {
		if e.ran > 0 && e.stopping() {
			batch.Defer()
			return
		}
		e.runOne(work, batch, op)
	}
}

// runOne runs an operation and passes the result to the batch, also if the operation calls
// runtime.Goexit.
func (e *entityRun) runOne(work context.Context, batch *entity.Batch, op *entity.Operation) {
	started := e.now()
	traced := e.traced.Begin(op, started)
	r, returned := entity.Result{}, false
	defer func() {
		if !returned {
			r = entity.Result{State: op.State, Failure: replay.FailureOf(errEntityGoexit)}
		}
		if r.Failure != nil && work.Err() != nil {
			batch.Defer() // the operation was interrupted
			return
		}
		ended := e.now()
		e.logOperation(op, &r, ended.Sub(started))
		traced.End(&r, r.Failure == nil || e.settings.KeepFailedEffects, ended)
		e.ran++
		batch.Done(r)
	}()
	r = e.operate(traced.Context(work), op)
	returned = true
}

// operate runs an operation under the watchdog.
func (e *entityRun) operate(ctx context.Context, op *entity.Operation) entity.Result {
	if e.watchdog != nil {
		t := &turn{log: e.log, label: e.label}
		e.watchdog.watchOperation(t, e.instanceID, op.Entity.Name, op.Name)
		defer e.watchdog.unwatch(t)
	}
	return operate(ctx, e.code, op)
}

// operate runs an operation and converts a panic to a failure.
func operate(ctx context.Context, code EntityCode, op *entity.Operation) (r entity.Result) {
	state := op.State
	defer func() {
		if v := recover(); v != nil {
			r = entity.Result{State: state, Failure: replay.FailureOfPanic(v, debug.Stack())}
		}
	}()
	return code(ctx, op)
}

// checkpoint returns the checkpoint that stores a state. As with an orchestration that
// continues as new, the entity gets a new history, which contains its start. The input of the
// start is the state.
//
// An unchanged state is not stored, unless messages were redelivered: the worker that took them
// may have died before clients could see the result.
func (e *entityRun) checkpoint(state *entity.State, messages []entity.Message, repeats bool) *provider.Checkpoint {
	now := e.now()
	input := state.Encode()
	if !repeats && e.start != nil && e.start.Input != nil && *e.start.Input == input && len(messages) == 0 {
		return &provider.Checkpoint{Instance: e.start.Instance} // the state is unchanged
	}
	start := &history.ExecutionStarted{
		Header:   history.NewHeader(now),
		Instance: history.OrchestrationInstance{InstanceID: e.instanceID, ExecutionID: e.newID()},
		Name:     e.instanceID, Input: &input,
	}
	if e.start != nil {
		start.Name, start.Version, start.Tags, start.Parent = e.start.Name, e.start.Version, maps.Clone(e.start.Tags), e.start.Parent
	}
	cp := &provider.Checkpoint{
		Instance: start.Instance, ContinuedAsNew: true, SendLast: true, CustomStatus: new(state.Status().Encode()),
		NewEvents: []history.Event{
			&history.OrchestratorStarted{Header: history.NewHeader(now)}, start,
			&history.OrchestratorCompleted{Header: history.NewHeader(now)},
		},
	}
	for _, m := range messages {
		cp.Messages = append(cp.Messages, e.message(m, start, now))
	}
	e.start = start
	return cp
}

// message converts a message that an entity sends (DurableTask.Core/TaskEntityDispatcher.cs,
// ProcessSendEventMessage and ProcessSendStartMessage).
func (e *entityRun) message(m entity.Message, self *history.ExecutionStarted, now time.Time) provider.TaskMessage {
	head := history.NewHeader(now)
	if m.Start == nil {
		return provider.TaskMessage{Event: &history.EventRaised{Header: head, Name: m.Name, Input: m.Input}, Target: m.Target}
	}
	own := map[string]string{history.FireAndForget: ""}
	maps.Copy(own, m.Start.Tags)
	tags := mergeTags(own, self.Tags)
	return provider.TaskMessage{
		Event: &history.ExecutionStarted{
			Header: head, Instance: m.Target, Name: m.Start.Name, Version: m.Start.Version, Input: m.Start.Input, Tags: tags,
			ScheduledStart: m.Start.Due, ParentTraceContext: m.Start.Trace,
			Parent: &history.ParentInstance{
				Instance: history.OrchestrationInstance{InstanceID: e.instanceID, ExecutionID: m.Sender},
				Name:     self.Name, Version: self.Version, TaskScheduleID: m.Number,
			},
		},
		Target: m.Target,
	}
}

// An EntityStepper runs the work items of entities one at a time, for a caller without a
// [Dispatcher]. One EntityStepper serves all entities of a hub. See [Stepper] for
// orchestrations.
type EntityStepper struct{ settled settled }

// Step runs the operations that a work item requests, and returns the checkpoint. A panic fails
// its operation.
func (s *EntityStepper) Step(ctx context.Context, functions Functions, cfg Config, item *provider.OrchestrationWorkItem) (*provider.Checkpoint, error) {
	code, err := findEntity(functions, item.Instance.InstanceID)
	if err != nil {
		return nil, err
	}
	e := entityRun{
		settled: &s.settled, instanceID: item.Instance.InstanceID, code: code, settings: cfg.Entities.settings(),
		now: cfg.Now, newID: cfg.NewID, log: cfg.Logger.With("name", entityName(item)), stopping: func() bool { return false },
	}
	return e.runMessages(ctx, context.WithoutCancel(ctx), item.History, item.Messages)
}

// MarkSettled records that a checkpoint of Step is settled. The caller must call it after it
// has stored the checkpoint, sent its messages and deleted the messages of the work item.
func (s *EntityStepper) MarkSettled(cp *provider.Checkpoint) { s.settled.add(cp.Instance) }

// logCommitted logs the result of a committed batch.
func (e *entityRun) logCommitted(name string, cp *provider.Checkpoint) {
	ctx := context.Background()
	if !e.log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	after := e.state.Status()
	if before := e.lockedBy; before != "" && before != after.LockedBy {
		e.log.LogAttrs(ctx, slog.LevelDebug, "entity unlocked", slog.String("event", "EntityLockReleased"),
			slog.String("lockedBy", before))
	}
	if after.LockedBy != "" && after.LockedBy != e.lockedBy {
		e.log.LogAttrs(ctx, slog.LevelDebug, "entity locked", slog.String("event", "EntityLockAcquired"),
			slog.String("lockedBy", after.LockedBy))
	}
	logScheduled(e.ids, name, cp)
	e.log.LogAttrs(ctx, slog.LevelDebug, "committed an entity's checkpoint", slog.String("event", "EntityBatchCompleted"),
		slog.Int("operations", e.ran), slog.Int("messages", len(cp.Messages)), slog.Int("queueSize", after.QueueSize))
}

// logOperation logs the result of an operation whose effects are kept, and every failure.
func (e *entityRun) logOperation(op *entity.Operation, r *entity.Result, took time.Duration) {
	ctx, traced := context.Background(), slog.Attr{} // slog omits an empty attribute
	if id := op.Trace.Parent.TraceID(); id != "" {
		traced = slog.String("traceId", id)
	}
	if r.Failure != nil {
		attrs := []slog.Attr{slog.String("event", "OperationFailed"), traced, slog.String("operation", op.Name)}
		e.log.LogAttrs(ctx, slog.LevelWarn, "entity operation failed", append(attrs, failureAttrs(r.Failure)...)...)
		if !e.settings.KeepFailedEffects {
			return
		}
	}
	if !e.log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	logEvent := func(message string, event slog.Attr, more ...slog.Attr) {
		attrs := []slog.Attr{event, traced, slog.String("operation", op.Name), slog.String("requestId", op.RequestID)}
		e.log.LogAttrs(ctx, slog.LevelDebug, message, append(attrs, more...)...)
	}
	if r.Failure == nil {
		logEvent("entity operation completed", slog.String("event", "OperationCompleted"), slog.Duration("duration", took))
	}
	switch {
	case op.State == nil && r.State != nil:
		logEvent("entity created", slog.String("event", "EntityStateCreated"))
	case op.State != nil && r.State == nil:
		logEvent("entity deleted", slog.String("event", "EntityStateDeleted"))
	}
}
