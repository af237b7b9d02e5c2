package handler

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// An outageError says that the storage account could not be reached, did not
// answer in time, or refuses to serve at all.
type outageError struct{ err error }

func (e *outageError) Error() string { return e.err.Error() }
func (e *outageError) Unwrap() error { return e.err }

// An outageClient is a provider's client half whose errors tell an outage of
// the storage from one of another service that an app's route calls. It logs
// what is asked of functions.
type outageClient struct {
	hub        provider.Client
	log        *slog.Logger
	unreadable *unreadableInstances
}

var (
	_ provider.Client       = outageClient{}
	_ provider.Purger       = outageClient{}
	_ provider.Rewinder     = outageClient{}
	_ provider.Tracker      = outageClient{}
	_ provider.LoadReporter = outageClient{}
	_ provider.Primary      = outageClient{}
	_ provider.Follower     = outageClient{}
	_ provider.Awaiter      = outageClient{}
	_ provider.Checker      = outageClient{}

	_ provider.UndecodableKeeper = outageClient{}
)

func (c outageClient) StartInstance(ctx context.Context, start provider.TaskMessage, refuse []history.RuntimeStatus) error {
	if c.IsBusy() {
		return &outageError{errBusy}
	}
	err := boundedErr(ctx, func(ctx context.Context) error { return c.hub.StartInstance(ctx, start, refuse) })
	if err == nil {
		c.logStart(ctx, start)
	}
	return err
}

func (c outageClient) Send(ctx context.Context, msg provider.TaskMessage) error {
	if c.IsBusy() {
		return &outageError{errBusy}
	}
	err := boundedErr(ctx, func(ctx context.Context) error { return c.hub.Send(ctx, msg) })
	if err == nil {
		c.logSignal(ctx, msg)
	}
	return err
}

func (c outageClient) Instance(ctx context.Context, id string, fetch provider.Fetch) (*provider.InstanceState, error) {
	if !canBeStored(id) {
		return nil, provider.ErrInstanceNotFound
	}
	return bounded(ctx, func(ctx context.Context) (*provider.InstanceState, error) { return c.hub.Instance(ctx, id, fetch) })
}

func (c outageClient) Instances(ctx context.Context, q provider.Query) (*provider.Page, error) {
	if c.IsBusy() {
		return nil, &outageError{errBusy}
	}
	page, err := bounded(ctx, func(ctx context.Context) (*provider.Page, error) { return c.hub.Instances(ctx, q) })
	if err == nil {
		c.unreadable.tell(c.log, page.Unreadable)
	}
	return page, err
}

func (c outageClient) History(ctx context.Context, id string) ([]history.Event, error) {
	events, err := c.hub.History(ctx, id)
	return events, markOutage(ctx, err)
}

func (c outageClient) AwaitEnd(ctx context.Context, id string) error {
	awaiter, ok := c.hub.(provider.Awaiter)
	if !ok {
		return provider.ErrNotSupported
	}
	return awaiter.AwaitEnd(ctx, id)
}

func (c outageClient) Follow(ctx context.Context, id string) *provider.InstanceState {
	if follower, ok := c.hub.(provider.Follower); ok {
		return follower.Follow(ctx, id)
	}
	return nil
}

func (c outageClient) Runs(id string) bool {
	follower, ok := c.hub.(provider.Follower)
	return ok && follower.Runs(id)
}

func (c outageClient) Purge(ctx context.Context, id string, seen *provider.InstanceState) error {
	purger, ok := c.hub.(provider.Purger)
	if !ok {
		return provider.ErrNotSupported
	}
	return markOutage(ctx, purger.Purge(ctx, id, seen))
}

func (c outageClient) Rewind(ctx context.Context, id, reason string) error {
	rewinder, ok := c.hub.(provider.Rewinder)
	if !ok {
		return provider.ErrNotSupported
	}
	return markOutage(ctx, rewinder.Rewind(ctx, id, reason))
}

func (c outageClient) Tracking(ctx context.Context, id string, q provider.TrackingQuery) (*provider.TrackingPage, error) {
	tracker, ok := c.hub.(provider.Tracker)
	if !ok {
		return nil, provider.ErrNotSupported
	}
	if !canBeStored(id) {
		return &provider.TrackingPage{}, nil
	}
	return bounded(ctx, func(ctx context.Context) (*provider.TrackingPage, error) { return tracker.Tracking(ctx, id, q) })
}

func (c outageClient) Load(ctx context.Context) (*provider.Load, error) {
	reporter, ok := c.hub.(provider.LoadReporter)
	if !ok {
		return nil, provider.ErrNotSupported
	}
	return bounded(ctx, reporter.Load)
}

// Check implements [provider.Checker] for every provider: one that cannot tell how it
// is is asked for an instance.
func (c outageClient) Check(ctx context.Context) error {
	if checker, ok := c.hub.(provider.Checker); ok {
		return markOutage(ctx, checker.Check(ctx))
	}
	return c.probe(ctx)
}

// probe asks for an instance that cannot exist, to see whether the storage answers. The
// first successful probe creates the hub.
func (c outageClient) probe(ctx context.Context) error {
	_, err := c.hub.Instance(ctx, "@@probe", provider.Fetch{})
	if errors.Is(err, provider.ErrInstanceNotFound) {
		return nil
	}
	return markOutage(ctx, err)
}

// errBusy says that the storage has more to do than it can.
var errBusy = errors.New("more requests wait for the storage than it answers")

// IsBusy reports whether new work is turned away.
func (c outageClient) IsBusy() bool {
	checker, ok := c.hub.(provider.Checker)
	return ok && checker.IsBusy()
}

// Undecodable implements [provider.UndecodableKeeper]: every message of a hub that is
// none can be decoded.
func (c outageClient) Undecodable() []provider.UndecodableMessage {
	if keeper, ok := c.hub.(provider.UndecodableKeeper); ok {
		return keeper.Undecodable()
	}
	return nil
}

func (c outageClient) RetryUndecodable(ctx context.Context) (int, error) {
	keeper, ok := c.hub.(provider.UndecodableKeeper)
	if !ok {
		return 0, nil
	}
	n, err := keeper.RetryUndecodable(ctx)
	return n, markOutage(ctx, err)
}

func (c outageClient) MakePrimary(ctx context.Context) error {
	primary, ok := c.hub.(provider.Primary)
	if !ok {
		return provider.ErrNotSupported
	}
	return boundedErr(ctx, primary.MakePrimary)
}

// logStart logs that an instance is to begin, as .NET's client does
// (WebJobs.Extensions.DurableTask/ContextImplementations/DurableClient.cs,
// StartNewAsync).
func (c outageClient) logStart(ctx context.Context, m provider.TaskMessage) {
	start, ok := m.Event.(*history.ExecutionStarted)
	if !ok || !c.log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	c.log.LogAttrs(ctx, slog.LevelDebug, "a function is scheduled", slog.String("event", "FunctionScheduled"),
		slog.String("instanceId", start.Instance.InstanceID), slog.String("executionId", start.Instance.ExecutionID),
		slog.String("name", start.Name), slog.String("functionType", "Orchestrator"), slog.String("reason", "NewInstance"))
}

// logSignal logs that an entity is to perform an operation (DurableClient.cs,
// SignalEntityAsyncInternal). Events that come to orchestrations are logged when
// they have come.
func (c outageClient) logSignal(ctx context.Context, m provider.TaskMessage) {
	e, ok := m.Event.(*history.EventRaised)
	if !ok || !c.log.Enabled(ctx, slog.LevelDebug) || e.Input == nil || !strings.HasPrefix(e.Name, "op") {
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
	c.log.LogAttrs(ctx, slog.LevelDebug, "a function is scheduled", slog.String("event", "FunctionScheduled"),
		slog.String("instanceId", m.Target.InstanceID), slog.String("name", name), slog.String("functionType", "Entity"),
		slog.String("operation", request.Operation), slog.String("reason", "EntitySignal:"+request.Operation))
}

// storageTime bounds one request to the storage with all its attempts. A caller who has
// waited that long gets an answer that says to try again.
const storageTime = 30 * time.Second

// bounded makes a request to the storage within storageTime, and marks outages.
func bounded[T any](ctx context.Context, request func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, storageTime)
	defer cancel()
	answer, err := request(ctx)
	return answer, markOutage(ctx, err)
}

// boundedErr is bounded for a request without an answer.
func boundedErr(ctx context.Context, request func(context.Context) error) error {
	_, err := bounded(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, request(ctx) })
	return err
}

// maxIDLength is how many bytes an ID in storage can have: a row's key has at most
// 1 KiB, which is 512 characters.
const maxIDLength = 512

// canBeStored reports whether an instance can have an ID. For others the storage is not
// asked.
func canBeStored(id string) bool { return len(id) <= maxIDLength && utf8.ValidString(id) }

// markOutage wraps err if it stands for an outage, and not merely for a caller
// who is gone.
func markOutage(ctx context.Context, err error) error {
	if err == nil || errors.Is(ctx.Err(), context.Canceled) || !isOutage(err) {
		return err
	}
	return &outageError{err}
}

func isOutage(err error) bool {
	if e, ok := errors.AsType[*azcore.ResponseError](err); ok {
		switch e.StatusCode {
		case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooManyRequests:
			return true
		}
		return isDeletedHub(err) || e.StatusCode >= http.StatusInternalServerError
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	_, isNet := errors.AsType[net.Error](err)
	return isNet
}

// isDeletedHub reports whether err says that the hub was deleted, which the next request
// that can makes again, or still is being deleted.
func isDeletedHub(err error) bool {
	e, ok := errors.AsType[*azcore.ResponseError](err)
	if !ok {
		return false
	}
	switch e.ErrorCode {
	case "TableNotFound", "QueueNotFound":
		return true
	}
	return strings.HasSuffix(e.ErrorCode, "BeingDeleted")
}
