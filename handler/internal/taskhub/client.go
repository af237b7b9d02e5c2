package taskhub

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"go.opentelemetry.io/otel/trace"
)

// An OutageError is the error of a request to storage that is unreachable, does not answer in time, or
// refuses all requests.
type OutageError struct{ Err error }

// Error returns the text of the cause.
func (e *OutageError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *OutageError) Unwrap() error { return e.Err }

// A Client wraps the client of a provider for use in a server. It limits the time of requests, and logs
// starts and signals like .NET's client. It wraps outages of the storage in [OutageError], which
// distinguishes them from failures of other services that a route calls.
type Client struct {
	Hub        provider.Client
	Log        *slog.Logger
	Unreadable *UnreadableLog
}

var (
	_ provider.Client          = Client{}
	_ provider.Purger          = Client{}
	_ provider.Rewinder        = Client{}
	_ provider.QueuePositioner = Client{}
	_ provider.Tracker         = Client{}
	_ provider.LoadReporter    = Client{}
	_ provider.Primary         = Client{}
	_ provider.Follower        = Client{}
	_ provider.Awaiter         = Client{}
	_ provider.Checker         = Client{}

	_ provider.UndecodableReporter = Client{}
	_ provider.PartitionReporter   = Client{}
)

// StartInstance implements [provider.Client].
func (c Client) StartInstance(ctx context.Context, start provider.TaskMessage, refuse []history.RuntimeStatus) error {
	if c.IsBusy() {
		return &OutageError{errBusy}
	}
	err := boundedErr(ctx, func(ctx context.Context) error { return c.Hub.StartInstance(ctx, start, refuse) })
	if err == nil {
		c.logStart(ctx, start)
	}
	return err
}

// Send implements [provider.Client].
func (c Client) Send(ctx context.Context, msg provider.TaskMessage) error {
	if c.IsBusy() {
		return &OutageError{errBusy}
	}
	err := boundedErr(ctx, func(ctx context.Context) error { return c.Hub.Send(ctx, msg) })
	if err == nil {
		c.logSignal(ctx, msg)
	}
	return err
}

// Instance implements [provider.Client].
func (c Client) Instance(ctx context.Context, id string, fetch provider.Fetch) (*provider.InstanceState, error) {
	if !canBeStored(id) {
		return nil, provider.ErrInstanceNotFound
	}
	return bounded(ctx, func(ctx context.Context) (*provider.InstanceState, error) { return c.Hub.Instance(ctx, id, fetch) })
}

// Instances implements [provider.Client].
func (c Client) Instances(ctx context.Context, q provider.Query) (*provider.Page, error) {
	if q.Continuation == "" && c.IsBusy() { // further pages of a list are allowed
		return nil, &OutageError{errBusy}
	}
	page, err := bounded(ctx, func(ctx context.Context) (*provider.Page, error) { return c.Hub.Instances(ctx, q) })
	if err == nil {
		for _, i := range page.Unreadable {
			c.Unreadable.Add(c.Log, i.InstanceID, i.Cause)
		}
	}
	return page, err
}

// History implements [provider.Client].
func (c Client) History(ctx context.Context, id string) ([]history.Event, error) {
	events, err := c.Hub.History(ctx, id)
	return events, markOutage(ctx, err)
}

// AwaitEnd implements [provider.Awaiter].
func (c Client) AwaitEnd(ctx context.Context, id string) error {
	awaiter, ok := c.Hub.(provider.Awaiter)
	if !ok {
		return provider.ErrNotSupported
	}
	return awaiter.AwaitEnd(ctx, id)
}

// Follow implements [provider.Follower].
func (c Client) Follow(ctx context.Context, id string) *provider.InstanceState {
	if follower, ok := c.Hub.(provider.Follower); ok {
		return follower.Follow(ctx, id)
	}
	return nil
}

// Runs implements [provider.Follower].
func (c Client) Runs(id string) bool {
	follower, ok := c.Hub.(provider.Follower)
	return ok && follower.Runs(id)
}

// Purge implements [provider.Purger].
func (c Client) Purge(ctx context.Context, id string, seen *provider.InstanceState) error {
	purger, ok := c.Hub.(provider.Purger)
	if !ok {
		return provider.ErrNotSupported
	}
	return markOutage(ctx, purger.Purge(ctx, id, seen))
}

// Rewind implements [provider.Rewinder].
func (c Client) Rewind(ctx context.Context, id, reason string) error {
	rewinder, ok := c.Hub.(provider.Rewinder)
	if !ok {
		return provider.ErrNotSupported
	}
	return markOutage(ctx, rewinder.Rewind(ctx, id, reason))
}

// QueuePosition implements [provider.QueuePositioner].
func (c Client) QueuePosition(ctx context.Context, id string) (provider.QueuePosition, error) {
	placer, ok := c.Hub.(provider.QueuePositioner)
	if !ok {
		return provider.QueuePosition{}, provider.ErrNotSupported
	}
	return bounded(ctx, func(ctx context.Context) (provider.QueuePosition, error) { return placer.QueuePosition(ctx, id) })
}

// Tracking implements [provider.Tracker].
func (c Client) Tracking(ctx context.Context, id string, q provider.TrackingQuery) (*provider.TrackingPage, error) {
	tracker, ok := c.Hub.(provider.Tracker)
	if !ok {
		return nil, provider.ErrNotSupported
	}
	if !canBeStored(id) {
		return &provider.TrackingPage{}, nil
	}
	return bounded(ctx, func(ctx context.Context) (*provider.TrackingPage, error) { return tracker.Tracking(ctx, id, q) })
}

// Load implements [provider.LoadReporter].
func (c Client) Load(ctx context.Context) (*provider.Load, error) {
	reporter, ok := c.Hub.(provider.LoadReporter)
	if !ok {
		return nil, provider.ErrNotSupported
	}
	return bounded(ctx, reporter.Load)
}

// Check implements [provider.Checker] for every provider. If the provider is no Checker, it reads an
// instance.
func (c Client) Check(ctx context.Context) error {
	if checker, ok := c.Hub.(provider.Checker); ok {
		return markOutage(ctx, checker.Check(ctx))
	}
	return c.probe(ctx)
}

// probe reads an instance that cannot exist, to check that the storage answers. The first successful
// probe creates the hub.
func (c Client) probe(ctx context.Context) error {
	_, err := c.Hub.Instance(ctx, "@@probe", provider.Fetch{})
	if errors.Is(err, provider.ErrInstanceNotFound) || IsDamaged(err) { // other partitions may work
		return nil
	}
	return markOutage(ctx, err)
}

// errBusy is the cause of an outage while the storage is overloaded.
var errBusy = errors.New("the storage is overloaded")

// IsBusy reports whether the storage is overloaded. The client then refuses new work.
func (c Client) IsBusy() bool {
	checker, ok := c.Hub.(provider.Checker)
	return ok && checker.IsBusy()
}

// Undecodable implements [provider.UndecodableReporter] for every provider.
func (c Client) Undecodable() []provider.UndecodableMessage {
	if keeper, ok := c.Hub.(provider.UndecodableReporter); ok {
		return keeper.Undecodable()
	}
	return nil
}

// RetryUndecodable implements [provider.UndecodableReporter].
func (c Client) RetryUndecodable(ctx context.Context) (int, error) {
	keeper, ok := c.Hub.(provider.UndecodableReporter)
	if !ok {
		return 0, nil
	}
	n, err := keeper.RetryUndecodable(ctx)
	return n, markOutage(ctx, err)
}

// BlockedPartitions implements [provider.PartitionReporter] for every provider.
func (c Client) BlockedPartitions() (blocked []provider.BlockedPartition, all bool) {
	if reporter, ok := c.Hub.(provider.PartitionReporter); ok {
		return reporter.BlockedPartitions()
	}
	return nil, false
}

// Backup writes the hub into a new file on this machine and returns the size in bytes. It has no time
// limit. It fails with [provider.ErrNotSupported] if the hub is not in a local file.
func (c Client) Backup(ctx context.Context, path string) (size int64, err error) {
	hub, ok := c.Hub.(interface {
		Backup(ctx context.Context, path string) (size int64, err error)
	})
	if !ok {
		return 0, provider.ErrNotSupported
	}
	return hub.Backup(ctx, path)
}

// MakePrimary implements [provider.Primary].
func (c Client) MakePrimary(ctx context.Context) error {
	primary, ok := c.Hub.(provider.Primary)
	if !ok {
		return provider.ErrNotSupported
	}
	return boundedErr(ctx, primary.MakePrimary)
}

// logStart logs the start of an instance like .NET's client
// (WebJobs.Extensions.DurableTask/ContextImplementations/DurableClient.cs, StartNewAsync).
func (c Client) logStart(ctx context.Context, m provider.TaskMessage) {
	start, ok := m.Event.(*history.ExecutionStarted)
	if !ok || !c.Log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	c.Log.LogAttrs(ctx, slog.LevelDebug, "function scheduled", slog.String("event", "FunctionScheduled"),
		slog.String("instanceId", start.Instance.InstanceID), slog.String("executionId", start.Instance.ExecutionID),
		slog.String("name", start.Name), traceID(ctx), slog.String("functionType", "Orchestrator"), slog.String("reason", "NewInstance"))
}

// logSignal logs a signal of an entity (DurableClient.cs, SignalEntityAsyncInternal). The worker logs
// events of orchestrations when they arrive.
func (c Client) logSignal(ctx context.Context, m provider.TaskMessage) {
	e, ok := m.Event.(*history.EventRaised)
	if !ok || !c.Log.Enabled(ctx, slog.LevelDebug) || e.Input == nil || !strings.HasPrefix(e.Name, "op") {
		return
	}
	name, isEntity := strings.CutPrefix(m.Target.InstanceID, "@")
	name, _, _ = strings.Cut(name, "@")
	var request struct {
		Operation string `json:"op"`
	}
	if !isEntity || json.Unmarshal([]byte(*e.Input), &request) != nil {
		return
	}
	c.Log.LogAttrs(ctx, slog.LevelDebug, "function scheduled", slog.String("event", "FunctionScheduled"),
		slog.String("instanceId", m.Target.InstanceID), slog.String("name", name), traceID(ctx), slog.String("functionType", "Entity"),
		slog.String("operation", request.Operation), slog.String("reason", "EntitySignal:"+request.Operation))
}

// traceID returns the trace ID of the span in ctx as an attribute, which is empty if ctx has no span.
func traceID(ctx context.Context) slog.Attr {
	if c := trace.SpanContextFromContext(ctx); c.IsValid() {
		return slog.String("traceId", c.TraceID().String())
	}
	return slog.Attr{}
}

// RequestTimeout limits a request to the storage, including all its attempts. Then the caller gets an
// answer with the advice to try again.
const RequestTimeout = 30 * time.Second

// bounded sends a request to the storage with the time limit [RequestTimeout] and marks outages in its
// error.
func bounded[T any](ctx context.Context, request func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	answer, err := request(ctx)
	return answer, markOutage(ctx, err)
}

// boundedErr is like [bounded], for a request without a result.
func boundedErr(ctx context.Context, request func(context.Context) error) error {
	_, err := bounded(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, request(ctx) })
	return err
}

// maxIDLength is the largest length of a stored ID in bytes. The key of a row is limited to 1 KiB,
// which is 512 characters.
const maxIDLength = 512

// canBeStored reports whether an instance can have the ID. For any other ID, no request is sent.
func canBeStored(id string) bool { return len(id) <= maxIDLength && utf8.ValidString(id) }

// markOutage wraps err in an [OutageError] if it is an outage. The error of a request that its caller
// canceled is not an outage.
func markOutage(ctx context.Context, err error) error {
	if err == nil || errors.Is(ctx.Err(), context.Canceled) || !isOutage(err) {
		return err
	}
	return &OutageError{err}
}

func isOutage(err error) bool {
	if IsStopped(err) || IsDamaged(err) || IsUncertain(err) {
		return true
	}
	if e, ok := errors.AsType[*azcore.ResponseError](err); ok {
		switch e.StatusCode {
		case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooManyRequests:
			return true
		}
		return IsDeletedHub(err) || e.StatusCode >= http.StatusInternalServerError
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	_, isNet := errors.AsType[net.Error](err)
	return isNet
}

// IsDeletedHub reports whether err means that the hub was deleted or is being deleted. The next request
// creates the hub again, if possible.
func IsDeletedHub(err error) bool {
	e, ok := errors.AsType[*azcore.ResponseError](err)
	if !ok {
		return false
	}
	switch e.ErrorCode {
	case "TableNotFound", "QueueNotFound", "ContainerNotFound":
		return true
	}
	return strings.HasSuffix(e.ErrorCode, "BeingDeleted")
}

// IsStopped reports whether err means that the hub was deleted and that only a restart of this process
// creates it again.
func IsStopped(err error) bool {
	_, stopped := errors.AsType[*partitionlog.DeletedError](err)
	return stopped
}

// IsDamaged reports whether err means that blobs of a hub in partition logs are damaged or missing.
func IsDamaged(err error) bool {
	return errors.As(err, new(*partitionlog.DamageError)) || errors.As(err, new(*partitionlog.UnreadableError))
}

// IsUncertain reports whether err means that a request may or may not have taken effect.
func IsUncertain(err error) bool {
	return errors.Is(err, azurestorage.ErrMaybeSent) || errors.As(err, new(*partitionlog.UncertainError))
}

// maxUnreadable is the largest number of unreadable instances that are logged.
const maxUnreadable = 1000

// An UnreadableLog logs each unreadable instance once.
type UnreadableLog struct {
	mu    sync.Mutex // guards known
	known map[string]bool
}

// Add logs an unreadable instance and the cause, unless it was logged before.
func (u *UnreadableLog) Add(log *slog.Logger, id string, cause error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.known == nil {
		u.known = make(map[string]bool)
	}
	if u.known[id] || len(u.known) == maxUnreadable {
		return
	}
	u.known[id] = true
	log.Error("lists and purges skip an instance because its stored record cannot be read; repair it, or delete it with a storage tool",
		"event", "InstanceUnreadable", "instanceId", id, "error", cause)
}
