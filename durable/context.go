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
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/google/uuid"
)

// Context is an orchestrator's access to its instance and its tasks. It is deliberately
// not a context.Context, so an orchestrator cannot pass it to code that blocks or does
// I/O.
//
// Only the orchestrator's own code may use it, never another goroutine. It is invalid
// after the orchestrator has returned.
type Context struct {
	x        *replay.Execution
	registry *Registry
	function *Registration
	logger   *slog.Logger // created by the first call of Logger
	// firstForeignCall is the error of the first durable call from a goroutine that the
	// orchestrator started.
	firstForeignCall atomic.Pointer[error]
}

// InstanceID returns the ID of the instance.
func (c *Context) InstanceID() InstanceID { return InstanceID(c.x.Instance().InstanceID) }

// ParentInstanceID returns the ID of the instance that started this one as a child. It
// is empty if a client started the instance.
func (c *Context) ParentInstanceID() InstanceID {
	if p := c.x.StartEvent().Parent; p != nil {
		return InstanceID(p.Instance.InstanceID)
	}
	return ""
}

// Name returns the wire name of the orchestrator.
func (c *Context) Name() string { return c.x.StartEvent().Name }

// Tags returns the tags of the instance, including those inherited from its parent.
func (c *Context) Tags() Tags { return maps.Clone(c.x.StartEvent().Tags) }

// HistoryLength returns the current number of events in the instance's history. It is
// the same in every replay. A long-running orchestrator can continue as new when the
// number is large:
//
//	if ctx.HistoryLength() > 5_000 {
//		return durable.ContinueAsNew(ctx, Poll, state)
//	}
func (c *Context) HistoryLength() int { return c.x.HistoryLength() }

// HistorySize returns the approximate size of the instance's history in bytes. It
// counts 128 bytes per event, plus the payloads, names and messages of received events
// in UTF-8. It is the same in every replay.
func (c *Context) HistorySize() int { return c.x.HistorySize() }

// Now returns the current time in UTC. It advances only while the orchestrator waits,
// and is the same in every replay.
func (c *Context) Now() time.Time { return c.x.ReadTime() }

// IsReplaying reports whether the orchestrator is repeating calls that are in its
// history. Decisions must not depend on it.
func (c *Context) IsReplaying() bool { return c.x.IsReplaying() }

// Logger returns the worker's logger with the instance's IDs, the orchestrator's name
// and the trace ID. While the orchestrator replays or is unloaded from memory the
// logger discards messages, so each message is logged once.
func (c *Context) Logger() *slog.Logger {
	if c.logger == nil {
		c.logger = slog.New(&replayHandler{c.x, c.registry.baseLogger().Handler()}).With(
			"instanceId", c.x.Instance().InstanceID,
			"executionId", c.x.Instance().ExecutionID,
			"name", c.function.name,
		)
		if id := c.x.StartEvent().ParentTraceContext.TraceID(); id != "" {
			c.logger = c.logger.With("traceId", id)
		}
	}
	return c.logger
}

// foreignCalls implements [replay.Guard] for the execution of a [Context]. It records
// durable calls from goroutines that the orchestrator started.
type foreignCalls Context

// UsageError returns the panic value of a call that the sentence describes.
func (*foreignCalls) UsageError(sentence string) error { return &UsageError{sentence} }

// RecordMisuse logs the error of a call and keeps the first one, which fails the
// orchestration. The log is the only report if the orchestrator has ended or waits for
// the goroutine.
func (c *foreignCalls) RecordMisuse(err error) {
	c.firstForeignCall.CompareAndSwap(nil, &err)
	c.registry.baseLogger().Error("ended a goroutine of an orchestrator because it made a durable call",
		"instanceId", c.x.Instance().InstanceID, "name", c.function.name, "error", err, "stack", string(debug.Stack()))
}

// InStep reports whether the caller runs on the goroutine of a step.
func (*foreignCalls) InStep() bool { return dispatch.InStep() }

// FirstMisuse returns the first error passed to RecordMisuse, or nil.
func (c *foreignCalls) FirstMisuse() error {
	if err := c.firstForeignCall.Load(); err != nil {
		return *err
	}
	return nil
}

// encode calls the function [encode] and counts as progress, because encoding a large
// value takes long. The durable call that follows counts again.
func (c *Context) encode(v any) (*string, error) {
	c.x.ReportProgress()
	return encode(v)
}

// maxCustomStatusKB is the maximum size of a custom status in whole KB of UTF-16 (the
// extension's MessagePayloadDataConverter.cs, Serialize, and
// DurableOrchestrationContext.cs, MaxCustomStatusPayloadSizeInKB).
const maxCustomStatusKB = 16

// SetCustomStatus sets the custom status of the instance, which clients can read: v as
// JSON, at most 16 KB in UTF-16. The status stays until it is set again. After
// continue-as-new, set it again: otherwise the second episode of the new execution
// erases it, as in .NET. The orchestration fails if the value is too large or cannot be
// encoded.
func (c *Context) SetCustomStatus(v any) {
	status, err := c.encode(v)
	if err != nil {
		c.x.PanicWithUsageError("SetCustomStatus", fmt.Sprintf("durable: encode custom status of type %T: %v", v, err))
	}
	if status != nil {
		if kb := utf16Size(*status) / 1024; kb > maxCustomStatusKB {
			c.x.PanicWithUsageError("SetCustomStatus", fmt.Sprintf(
				"The UTF-16 size of the JSON-serialized payload must not exceed %d KB. The current payload size is %d KB.", maxCustomStatusKB, kb,
			))
		}
	}
	c.x.SetCustomStatus(status)
}

// replayHandler discards log records while the orchestrator replays or is unloaded.
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

func (c *Context) refuse(call, sentence string) { c.x.PanicWithUsageError(call, sentence) }

// CriticalSection returns the entities that the orchestrator has locked, in order, and
// reports whether there are any.
func (c *Context) CriticalSection() (entities []EntityID, ok bool) {
	for _, id := range c.x.LockedEntities() {
		entities = append(entities, EntityID(id))
	}
	return entities, len(entities) > 0
}

// checkChildID returns an error if a child cannot have the ID. An empty ID means that
// none was chosen. The extension has the same texts (DurableOrchestrationContext.cs,
// CallDurableTaskFunctionAsync).
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

// Timer returns a task that completes when d has passed since [Context.Now]. Its value
// is the due time. If d is zero or negative the timer is due immediately, but it still
// takes a separate episode.
//
// A timer of more than 6 days is split into consecutive timers of 3 days each.
func (c *Context) Timer(d time.Duration) *Task[time.Time] {
	due := history.TruncateToTicks(c.x.Now().Add(d))
	t := &Task[time.Time]{resolved: true, value: due}
	c.x.CreateTimer(&t.f, due)
	return t
}

// Sleep waits for d, like [Context.Timer].
func (c *Context) Sleep(d time.Duration) {
	_, _ = c.Timer(d).Await() // a timer cannot fail
}

// NewUUID returns a new UUID that is the same in every replay. It is a version 5 UUID
// of the instance ID, the current time and a counter, as in durabletask-dotnet's
// NewGuid. Entity requests and children without a chosen ID also increment the counter.
// If the first of these is a child, the counter counts only the UUIDs of this method.
func (c *Context) NewUUID() UUID { return UUID(c.x.NewGUID()) }

// Patched reports whether the execution includes a change of its orchestrator's code.
// The id names the change. Use it to change code while instances run. Executions that
// have already passed the position of the call keep the old path; all others take the
// new one.
//
//	if ctx.Patched("check-fraud") {
//		… // the new code
//	} else {
//		… // the old code, if there was any
//	}
//
// Patched returns true if the execution reaches the call for the first time, and
// records that in the history. It returns false if the execution had passed this point
// before the call was added to the code. Replays return the same answer. The first
// answer for an ID applies to the whole execution. Continue-as-new starts another
// execution, which includes all changes. An execution that was suspended before its
// code first ran includes none: its history looks as if the code had not called
// Patched.
//
// You may remove the call when no running execution needs the old code; `hub verify`
// shows whether one does. Keep the new code: executions that include the change
// continue with it. An ID must be a constant that the orchestrator uses for no other
// change. An empty ID fails the orchestration with a [UsageError].
//
// A .NET worker on the same hub records no answer. If it has run an execution past the
// call, the decisions that follow in the history give the answer: false if the old code
// matches them, otherwise true. If both paths start with the same decisions, the hub
// must not have .NET workers.
func (c *Context) Patched(id string) bool { return c.x.Patched(id) }

// Version returns the version of the instance. It is set when the instance starts and
// can change when it continues as new. It is empty if the instance has none.
func (c *Context) Version() Version { return Version(c.x.StartEvent().Version) }

// VersionAtLeast reports whether the instance's version is v or newer, by
// [Version.Compare]. With it, an orchestrator can run new code for new instances while
// older instances keep the old path:
//
//	if ctx.VersionAtLeast("1.1") {
//		…
//	}
func (c *Context) VersionAtLeast(v Version) bool { return c.Version().Compare(v) >= 0 }

// UUID is a universally unique identifier. [Context.NewUUID] returns one. Its JSON is a
// string such as "7d444840-9dc0-11d1-b245-5ffdce74fad2".
type UUID [16]byte

// String returns u in the form of its JSON.
func (u UUID) String() string { return uuid.UUID(u).String() }

// MarshalText returns u in the form of [UUID.String].
func (u UUID) MarshalText() ([]byte, error) { return uuid.UUID(u).MarshalText() }

// UnmarshalText parses the form of [UUID.String].
func (u *UUID) UnmarshalText(text []byte) error { return (*uuid.UUID)(u).UnmarshalText(text) }

// uuidSpace is the namespace of the UUIDs that this package derives.
var uuidSpace = uuid.MustParse("9e952958-5e33-4daf-827f-2fa12937b875")
