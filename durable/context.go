package durable

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
)

// Context is an orchestrator's only window on the world. It is deliberately
// not a context.Context: code that could block or do I/O does not accept it.
//
// It is for the orchestrator's own code, on no other goroutine, and is
// worthless when the orchestrator has returned.
type Context struct {
	x        *replay.Execution
	registry *Registry
	function *Function
	logger   *slog.Logger // made when first asked for
	// noted is the first durable call from a goroutine that the orchestrator started.
	noted atomic.Pointer[error]
}

// InstanceID returns the ID of the instance.
func (c *Context) InstanceID() InstanceID { return InstanceID(c.x.Instance().InstanceID) }

// ParentInstanceID returns the ID of the instance that started this one as a
// child, empty if a client started it.
func (c *Context) ParentInstanceID() InstanceID {
	if p := c.x.Started().Parent; p != nil {
		return InstanceID(p.Instance.InstanceID)
	}
	return ""
}

// Name returns the wire name of the orchestrator.
func (c *Context) Name() string { return c.x.Started().Name }

// Tags returns the tags that the instance was started with, and has inherited.
func (c *Context) Tags() Tags { return maps.Clone(c.x.Started().Tags) }

// HistoryLength returns how many events the instance's history has at this
// point. It is the same in every replay. An orchestrator that may go on for long
// can continue as new when it has become large:
//
//	if ctx.HistoryLength() > 5_000 {
//		return durable.ContinueAsNew(ctx, Poll, state)
//	}
func (c *Context) HistoryLength() int { return c.x.HistoryLength() }

// HistorySize returns roughly how many bytes the instance's history has at this
// point: 128 for each event, and the payloads, names and messages of those that
// arrived, in UTF-8. It is the same in every replay.
func (c *Context) HistorySize() int { return c.x.HistorySize() }

// Now returns the current time, UTC. It stands still while the orchestrator
// runs, moves on while it waits, and is the same in every replay.
func (c *Context) Now() time.Time { return c.x.Now() }

// IsReplaying reports whether the orchestrator does again what it did before.
// What it decides must not depend on that.
func (c *Context) IsReplaying() bool { return c.x.IsReplaying() }

// Logger returns the worker's logger, with the instance's IDs; it is
// slog.Default() if [Config] has none. It is silent while the orchestrator replays or is taken out of memory, so that every
// message is logged once.
func (c *Context) Logger() *slog.Logger {
	if c.logger == nil {
		c.logger = slog.New(&replayHandler{c.x, c.registry.baseLogger().Handler()}).With(
			"instanceId", c.x.Instance().InstanceID,
			"executionId", c.x.Instance().ExecutionID,
			"orchestrator", c.function.name,
		)
	}
	return c.logger
}

// foreignCalls is a [Context] as the [replay.Guard] of its execution.
type foreignCalls Context

// UsageError returns the panic value of a call with that sentence.
func (*foreignCalls) UsageError(sentence string) error { return &UsageError{sentence} }

// Note keeps the first call, which fails the orchestration, and logs each: if the
// orchestrator has ended, or waits for the goroutine, only the log shows it.
func (c *foreignCalls) Note(err error) {
	c.noted.CompareAndSwap(nil, &err)
	c.registry.baseLogger().Error("a goroutine that an orchestrator started made a durable call, and was ended",
		"instanceId", c.x.Instance().InstanceID, "orchestrator", c.function.name, "error", err, "stack", string(debug.Stack()))
}

// Noted returns the error of the first call, nil if there was none.
func (c *foreignCalls) Noted() error {
	if err := c.noted.Load(); err != nil {
		return *err
	}
	return nil
}

// encode is the function [encode]. Its start counts as progress, since a large value takes
// long. The durable call that follows counts again.
func (c *Context) encode(v any) (*string, error) {
	c.x.Progressed()
	return encode(v)
}

// maxCustomStatus is how many whole KB of UTF-16 a custom status may have (the
// extension's MessagePayloadDataConverter.cs, Serialize, and
// DurableOrchestrationContext.cs, MaxCustomStatusPayloadSizeInKB).
const maxCustomStatus = 16

// SetCustomStatus sets what clients see of the instance besides its runtime
// status: v as JSON, of at most 16 KB in UTF-16. The last value stays until
// another is set. A value that is too large or cannot be encoded fails the
// orchestration.
func (c *Context) SetCustomStatus(v any) {
	status, err := c.encode(v)
	if err != nil {
		c.x.Refuse("SetCustomStatus", fmt.Sprintf("durable: encode custom status of type %T: %v", v, err))
	}
	if status != nil {
		if kb := utf16Size(*status) / 1024; kb > maxCustomStatus {
			c.x.Refuse("SetCustomStatus", fmt.Sprintf(
				"The UTF-16 size of the JSON-serialized payload must not exceed %d KB. The current payload size is %d KB.", maxCustomStatus, kb,
			))
		}
	}
	c.x.SetCustomStatus(status)
}

// replayHandler passes on what an orchestrator logs for the first time.
type replayHandler struct {
	x *replay.Execution
	slog.Handler
}

func (h *replayHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return !h.x.IsReplaying() && !h.x.IsUnwinding() && h.Handler.Enabled(ctx, level)
}

func (h *replayHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &replayHandler{h.x, h.Handler.WithAttrs(attrs)}
}

func (h *replayHandler) WithGroup(name string) slog.Handler {
	return &replayHandler{h.x, h.Handler.WithGroup(name)}
}

func (c *Context) entities() *Registry { return c.registry }

func (c *Context) signal(target entity.ID, operation string, input *string, due time.Time) {
	c.x.SignalEntity(target, operation, input, due)
}

func (c *Context) refuse(call, sentence string) { c.x.Refuse(call, sentence) }

// CriticalSection returns the entities that the orchestrator has locked, in order,
// and reports whether it has locked any.
func (c *Context) CriticalSection() (entities []EntityID, ok bool) {
	for _, id := range c.x.Locked() {
		entities = append(entities, EntityID(id))
	}
	return entities, len(entities) > 0
}

// checkChildID returns an error if a child cannot have the ID, which is empty if
// none was chosen. The texts are the extension's
// (DurableOrchestrationContext.cs, CallDurableTaskFunctionAsync).
func (c *Context) checkChildID(id InstanceID) error {
	if id == "" {
		return nil
	}
	if err := ValidateInstanceID(id); err != nil {
		return err
	}
	parent := c.ParentInstanceID()
	if strings.EqualFold(string(id), string(c.InstanceID())) || parent != "" && strings.EqualFold(string(id), string(parent)) {
		return &InstanceIDError{ID: id, Reason: "The instance ID of a sub-orchestration must be different than the instance ID of a parent orchestration."}
	}
	return nil
}

// Timer returns a task that is complete when d has passed since [Context.Now].
// Its value is the time at which it was due. If d is not above zero it is due
// at once; even then it takes an episode of its own.
//
// Timers of more than 6 days are made of several in a row, of 3 days each.
func (c *Context) Timer(d time.Duration) *Task[time.Time] {
	due := history.Ticks(c.x.Now().Add(d))
	t := &Task[time.Time]{resolved: true, value: due}
	c.x.CreateTimer(&t.f, due)
	return t
}

// Sleep waits for d, as [Context.Timer] does.
func (c *Context) Sleep(d time.Duration) {
	_, _ = c.Timer(d).Await() // a timer cannot fail
}

// NewUUID returns a UUID that is new, and the same in every replay: version 5,
// of the instance's ID, the current time and how many came before, as that of
// durabletask-dotnet's NewGuid. Each request to an entity and each child without
// an ID of its own counts as one that came before, unless a child is the first of
// them: then only NewUUID counts.
func (c *Context) NewUUID() UUID { return UUID(c.x.NewGUID()) }

// Patched reports whether the execution has the change of its orchestrator's code that
// id names. It lets code be changed while instances are under way: those go on as they
// began, and all others do the new thing.
//
//	if ctx.Patched("check-fraud") {
//		… // the new code
//	} else {
//		… // the old code, if there was any
//	}
//
// It is true for an execution that comes here for the first time now, and is recorded in
// its history; false for one that came past here when the call was not there yet, and
// true again whenever what was recorded is replayed. The first answer for an ID stands
// for the whole execution, wherever else it asks. Continue-as-new begins another, which
// has all changes. An execution that was suspended before its code had run at all has
// none: nothing tells it from one whose code did not ask.
//
// Executions that have a change go on when the call is taken out, if what they did is
// kept; those that do not have it need the old code. `hub verify` says whether there are
// any. An ID is a constant that was used for no other change of the orchestrator.
//
// A .NET worker on the same hub records nothing. If it has carried an execution past the call,
// the decisions that follow in the history tell the answer: false if the history fits that, else
// true. A patch whose two answers begin alike needs a hub without .NET workers.
func (c *Context) Patched(id string) bool { return c.x.Patched(id) }

// Version returns the version that the instance was started with, and keeps
// until it continues as new with another. It is empty if it has none.
func (c *Context) Version() Version { return Version(c.x.Started().Version) }

// VersionAtLeast reports whether the instance's version is v or newer, by
// [Version.Compare]. It lets one orchestrator do new things for new instances,
// while those that are under way go on as they began:
//
//	if ctx.VersionAtLeast("1.1") {
//		…
//	}
func (c *Context) VersionAtLeast(v Version) bool { return c.Version().Compare(v) >= 0 }
