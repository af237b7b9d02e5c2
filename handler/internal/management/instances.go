package management

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/jsontext"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/statusjson"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
	"github.com/labstack/echo/v4"
)

// instanceAPI implements the operations on orchestrations.
type instanceAPI struct{ *API }

// shortestPoll is the shortest polling interval of a caller that waits.
const shortestPoll = 50 * time.Millisecond

// start answers POST orchestrators/{name}[/{id}]. With timeout and pollingInterval it waits for the
// instance to end.
func (m instanceAPI) start(name string, id durable.InstanceID) operation {
	return func(c echo.Context, q web.Query) error {
		ctx := c.Request().Context()
		input, err := web.ReadBody(c)
		if err != nil {
			return err
		}
		waitOptions, err := waitOptionsOf(q)
		if err != nil {
			return err
		}
		var opts []durable.StartOption
		if version := q.Text("version"); version != "" {
			opts = append(opts, durable.Version(version)) // otherwise defaultVersion
		}
		if id != "" {
			opts = append(opts, id)
		}
		started, err := m.instances.StartByName(ctx, name, input, opts...)
		if unfit, ok := errors.AsType[*durable.InstanceIDError](err); ok {
			return web.BadArgument("%s", unfit.Reason)
		}
		if long, ok := errors.AsType[*durable.TooLongError](err); ok {
			return web.BadArgument("%v", long)
		}
		if err != nil {
			return err
		}
		LinksOf(c).warning = m.warnOfStart(name, q.Text("version"))
		return m.answerStarted(c, q, started, waitOptions)
	}
}

// waitOptions holds the timeout and the polling interval of a caller that waits for an instance to end. It
// is nil for a caller that does not wait.
type waitOptions struct{ timeout, interval time.Duration }

func waitOptionsOf(q web.Query) (*waitOptions, error) {
	timeout, waits := q.Seconds("timeout")
	interval, both := q.Seconds("pollingInterval")
	switch {
	case !waits || !both:
		return nil, nil
	case interval > timeout:
		return nil, web.BadArgument("Total timeout %v should be bigger than retry timeout %v", timeout.Seconds(), interval.Seconds())
	}
	return &waitOptions{timeout, interval}, nil
}

// answerStarted answers a request that has started an instance.
func (m instanceAPI) answerStarted(c echo.Context, q web.Query, id durable.InstanceID, p *waitOptions) error {
	if p != nil {
		return m.waitOrCheckStatus(c, q, id, p.timeout, p.interval)
	}
	return CheckStatus(c, id)
}

// waitOrCheckStatus waits for a started instance to end. It answers with the output of a completed
// instance, or with the status of an instance that ended otherwise. If the timeout expires or the server
// stops, it answers like [CheckStatus] (HttpApiHandler.cs,
// WaitForCompletionOrCreateCheckStatusResponseAsync). It does so also if the instance was purged or its
// status is unreadable: an error would not contain the instance's ID, and the caller would start another.
func (m instanceAPI) waitOrCheckStatus(c echo.Context, q web.Query, id durable.InstanceID, timeout, interval time.Duration) error {
	ctx := c.Request().Context()
	for deadline := time.Now().Add(timeout); ; {
		state, err := m.instances.Status(ctx, id, durable.Fetch{Output: true})
		switch {
		case err != nil: // the next poll may succeed
		case state.Status == history.Completed:
			return web.WriteJSON(c, http.StatusOK, PayloadJSON(state.Output))
		case state.Status.IsTerminal():
			if err := m.status(id)(c, q); err == nil || c.Response().Committed {
				return err
			}
		}
		left := time.Until(deadline)
		if left <= 0 {
			return CheckStatus(c, id)
		}
		select {
		case <-time.After(min(max(interval, shortestPoll), left)):
		case <-ctx.Done():
			return CheckStatus(c, id)
		case <-m.draining:
			return CheckStatus(c, id)
		}
	}
}

const (
	// HeaderContinuation is the header that contains the continuation token of a list.
	HeaderContinuation = "x-ms-continuation-token"

	// retryStatus is the Retry-After of a status that is not final, in seconds.
	retryStatus = "5"
)

// A StatusPayload is the status of an instance in an answer.
type StatusPayload = statusjson.Status[historyEvent]

// statusOf returns the payload of an instance, without history. It omits the input and output unless
// fetch asks for them, even if the store returned them. blocked is the result of [API.blockedBy].
func (m instanceAPI) statusOf(state *durable.InstanceState, fetch durable.Fetch, blocked map[string]*durable.BlockedFunction) StatusPayload {
	input, output := state.Input, state.Output
	if !fetch.Input {
		input = nil
	}
	if !fetch.Output {
		output = nil
	}
	return StatusPayload{
		Name:            state.Name,
		InstanceID:      state.Instance.InstanceID,
		RuntimeStatus:   state.Status.String(),
		Input:           PayloadJSON(input),
		CustomStatus:    PayloadJSON(state.CustomStatus),
		Output:          PayloadJSON(output),
		CreatedTime:     wholeSeconds(state.CreatedAt),
		LastUpdatedTime: wholeSeconds(state.LastUpdatedAt),
		Version:         state.Version,
		Tags:            state.Tags,
		WaitsFor:        m.waitsFor(state, blocked),
	}
}

// wholeSeconds formats t like the extension, which appends "Z" to .NET's format "s" (HttpApiHandler.cs,
// ConvertFrom).
func wholeSeconds(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05") + "Z" }

// PayloadJSON converts a stored payload to JSON. Valid JSON stays unchanged, nil becomes null, and
// white space becomes an empty string. Any other text, such as a reason for termination, becomes a
// string. So does JSON that is nested too deeply or is not valid UTF-8; other programs may have stored
// it (ContextImplementations/DurableClient.cs, ParseToJToken).
func PayloadJSON(stored *string) json.RawMessage {
	switch {
	case stored == nil:
		return json.RawMessage("null")
	case strings.TrimSpace(*stored) == "":
		return json.RawMessage(`""`)
	case json.Valid([]byte(*stored)) && !web.IsTooDeep([]byte(*stored)) && utf8.ValidString(*stored):
		return json.RawMessage(*stored)
	}
	text, err := jsontext.Marshal(*stored)
	if err != nil {
		panic("a string cannot be encoded as JSON: " + err.Error())
	}
	return text
}

// status answers GET instances/{id}.
func (m instanceAPI) status(id durable.InstanceID) operation {
	return func(c echo.Context, q web.Query) error {
		ctx := c.Request().Context()
		fetch := fetchOf(q)
		state, _ := c.Get(stateKey).(*durable.InstanceState)
		if state == nil {
			var err error
			if state, err = m.instances.Status(ctx, id, fetch); err != nil {
				return err
			}
		}
		var blocked map[string]*durable.BlockedFunction
		if !state.Status.IsTerminal() {
			blocked = m.blockedBy()
		}
		payload := m.statusOf(state, fetch, blocked)
		payload.RunsHere = m.runsHere(state)
		if q.Boolean("showHistory", false) && state.Status != history.Pending {
			events, err := m.instances.History(ctx, id)
			if err != nil {
				return err
			}
			payload.HistoryEvents = ShapeHistory(events, fetch.Input, q.Boolean("showHistoryOutput", false))
		}
		payload.Warning = LinksOf(c).warning
		code := statusCode(state.Status, q.Boolean("returnInternalServerErrorOnFailure", false))
		if code == http.StatusAccepted {
			c.Response().Header().Set(echo.HeaderLocation, LinksOf(c).requestURL(c.Request()))
			c.Response().Header().Set(echo.HeaderRetryAfter, retryStatus)
		}
		return web.WriteJSON(c, code, payload)
	}
}

// runsHere returns the activities and steps of an instance that this process runs, in the order of their
// numbers.
func (m instanceAPI) runsHere(state *durable.InstanceState) (all []statusjson.Running) {
	running, _ := m.worker.Running(durable.InstanceID(state.Instance.InstanceID), state.Instance.ExecutionID)
	slices.SortFunc(running, func(a, b durable.RunningActivity) int { return cmp.Compare(a.TaskID, b.TaskID) })
	for _, a := range running {
		kind := durable.ReasonActivity
		if a.IsStep {
			kind = durable.ReasonStep
		}
		all = append(all, statusjson.Running{Kind: string(kind), Name: a.Name, TaskID: a.TaskID, Attempt: a.Attempt, Since: timeOrNone(a.Since)})
	}
	return all
}

// fetchOf returns the parts of an instance that a request asks for.
func fetchOf(q web.Query) durable.Fetch {
	return durable.Fetch{Input: q.Boolean("showInput", true), Output: q.Boolean("showOutput", true)}
}

// statusCode returns the HTTP status for a runtime status (HttpApiHandler.cs,
// HandleGetStatusRequestAsync).
func statusCode(s history.RuntimeStatus, errorOnFailure bool) int {
	switch s {
	case history.Pending, history.Running, history.ContinuedAsNew, history.Suspended:
		return http.StatusAccepted
	case history.Completed, history.Canceled, history.Terminated:
		return http.StatusOK
	case history.Failed:
		if !errorOnFailure {
			return http.StatusOK
		}
	}
	return http.StatusInternalServerError
}

// list answers GET instances.
func (m instanceAPI) list(c echo.Context, q web.Query) error {
	fetch := fetchOf(q)
	size, err := q.PageSize()
	if err != nil {
		return err
	}
	page, err := m.instances.ListInstances(c.Request().Context(), durable.Query{
		CreatedFrom:  q.Time("createdTimeFrom"),
		CreatedTo:    q.Time("createdTimeTo"),
		Statuses:     q.Statuses("runtimeStatus"),
		IDPrefix:     q.Text("instanceIdPrefix"),
		Fetch:        fetch,
		PageSize:     size,
		Continuation: c.Request().Header.Get(HeaderContinuation),
	})
	if err != nil {
		return BadToken(err)
	}
	payloads, blocked := make([]StatusPayload, len(page.Instances)), m.blockedBy()
	for i, state := range page.Instances {
		payloads[i] = m.statusOf(state, fetch, blocked)
	}
	c.Response().Header().Set(HeaderContinuation, page.Continuation)
	setUnreadable(c, len(page.Unreadable))
	return web.WriteJSON(c, http.StatusOK, payloads)
}

// BadToken converts an error about an invalid continuation token to an answer with status 400. It
// returns any other error unchanged.
func BadToken(err error) error {
	if !errors.Is(err, durable.ErrContinuation) {
		return err
	}
	return web.AnswerWith(http.StatusBadRequest, web.WithCause("The continuation token was not issued by this task hub.", err))
}

// accepted returns an operation on an instance that takes a reason and answers with status 202.
func accepted(id durable.InstanceID, do func(ctx context.Context, id durable.InstanceID, reason string) error) operation {
	return func(c echo.Context, q web.Query) error {
		if err := do(c.Request().Context(), id, q.Text("reason")); err != nil {
			return err
		}
		return c.NoContent(http.StatusAccepted)
	}
}

func (m instanceAPI) terminate(ctx context.Context, id durable.InstanceID, reason string) error {
	return m.instances.Terminate(ctx, id, reason)
}

// rewind answers POST instances/{id}/rewind. If the instance cannot be rewound, the answer is the
// reason as a JSON string (HttpApiHandler.cs, HandleRewindInstanceRequestAsync).
func (m instanceAPI) rewind(id durable.InstanceID) operation {
	return func(c echo.Context, q web.Query) error {
		err := m.instances.Rewind(c.Request().Context(), id, q.Text("reason"))
		if state, ok := errors.AsType[*durable.InstanceStateError](err); ok {
			return web.WriteJSON(c, http.StatusPreconditionFailed, state.Error())
		}
		switch {
		case err == nil:
			return c.NoContent(http.StatusAccepted)
		case errors.Is(err, durable.ErrInstanceNotFound):
			return web.WriteJSON(c, http.StatusNotFound, fmt.Sprintf("No orchestration with instance ID \"%s\" found.", id))
		case errors.Is(err, durable.ErrLocksReleased):
			return web.WriteJSON(c, http.StatusPreconditionFailed, err.Error())
		case errors.Is(err, durable.ErrNotSupported):
			return web.AnswerWith(http.StatusNotImplemented, web.WithCause("Rewind is not supported by the underlying storage provider.", err))
		}
		return err
	}
}

// restart answers POST instances/{id}/restart, in the same way as a start (HttpApiHandler.cs,
// HandleRestartInstanceRequestAsync).
func (m instanceAPI) restart(id durable.InstanceID) operation {
	return func(c echo.Context, q web.Query) error {
		waitOptions, err := waitOptionsOf(q)
		if err != nil {
			return err
		}
		var opts []durable.StartOption
		if !q.Boolean("restartWithNewInstanceId", true) {
			opts = append(opts, id)
		}
		restarted, err := m.instances.Restart(c.Request().Context(), id, opts...)
		if exists, ok := errors.AsType[*durable.InstanceExistsError](err); ok {
			return web.AnswerWith(http.StatusConflict, web.WithCause("A non-terminal instance with this instance ID already exists.", exists))
		}
		switch {
		case errors.Is(err, durable.ErrInstanceNotFound):
			return web.AnswerWith(http.StatusBadRequest, web.WithCause("InstanceId does not match a valid orchestration instance.", err))
		case err != nil:
			return err
		}
		if len(m.knownOrchestrators()) > 0 {
			state, err := m.instances.Status(c.Request().Context(), restarted, durable.Fetch{})
			if err == nil { // the restart has succeeded in any case
				LinksOf(c).warning = m.warnOfStart(state.Name, state.Version)
			}
		}
		return m.answerStarted(c, q, restarted, waitOptions)
	}
}

// A purgePayload is the result of a purge (WebJobs.Extensions.DurableTask/PurgeHistoryResult.cs).
type purgePayload struct {
	InstancesDeleted int `json:"instancesDeleted"`
}

// purge answers DELETE instances/{id}. If the instance has not ended, the answer is the reason as a
// JSON string (HttpApiHandler.cs, HandleDeleteHistoryByIdRequestAsync).
func (m instanceAPI) purge(id durable.InstanceID) operation {
	return func(c echo.Context, _ web.Query) error {
		result, err := m.instances.Purge(c.Request().Context(), id)
		if state, ok := errors.AsType[*durable.InstanceStateError](err); ok {
			return web.WriteJSON(c, http.StatusPreconditionFailed, state.Error())
		}
		if err != nil {
			return err
		}
		return web.WriteJSON(c, http.StatusOK, purgePayload{result.Instances})
	}
}

// purgeMany answers DELETE instances. It purges only ended instances, even if the request names other
// statuses (HttpApiHandler.cs, HandleDeleteHistoryWithFiltersRequestAsync). .NET ignores a createdTimeTo and
// a runtimeStatus that it cannot parse, and so purges more instances than the caller selected. purgeMany
// refuses such a request.
func (m instanceAPI) purgeMany(c echo.Context, q web.Query) error {
	from, ok := web.ParseTime(q.Text("createdTimeFrom"))
	if !ok {
		return web.WriteJSON(c, http.StatusBadRequest, "Please provide value for 'createdTimeFrom' parameter.")
	}
	to, ok := web.ParseTime(q.Text("createdTimeTo"))
	if text := q.Text("createdTimeTo"); !ok && text != "" {
		return web.WriteJSON(c, http.StatusBadRequest, fmt.Sprintf("createdTimeTo %q is not a valid time.", text))
	} else if !ok {
		to = time.Now()
	}
	statuses := q.Statuses("runtimeStatus")
	if text := strings.Join(q["runtimestatus"], ","); text != "" && len(statuses) == 0 {
		return web.WriteJSON(c, http.StatusBadRequest,
			fmt.Sprintf("runtimeStatus %q has no valid status. Valid statuses of ended instances: Completed, Failed, Canceled, Terminated.", text))
	}
	result, err := m.instances.PurgeMany(c.Request().Context(), durable.PurgeFilter{
		CreatedFrom: from, CreatedTo: to, Statuses: statuses, IDPrefix: q.Text("instanceIdPrefix"),
	})
	setUnreadable(c, result.Unreadable)
	switch {
	case err != nil:
		return web.WithPurged(err, result.Instances)
	case result.Instances == 0:
		return c.NoContent(http.StatusNotFound)
	}
	return web.WriteJSON(c, http.StatusOK, purgePayload{result.Instances})
}

// tracking answers GET instances/{id}/tracking with a page of tracking records.
func (m instanceAPI) tracking(id durable.InstanceID) operation {
	return func(c echo.Context, q web.Query) error {
		size, err := q.PageSize()
		if err != nil {
			return err
		}
		from := c.Request().Header.Get(HeaderContinuation)
		page, err := m.instances.Tracking(c.Request().Context(), id, durable.TrackingQuery{PageSize: size, Continuation: from})
		switch {
		case errors.Is(err, durable.ErrNotSupported):
			return web.AnswerWith(http.StatusNotImplemented, web.WithCause("This hub does not track its orchestrations: set storageProvider.trackingEnabled.", err))
		case err != nil:
			return BadToken(err)
		case len(page.Records) == 0 && from == "" && page.Continuation == "":
			return notFoundEmpty(c)
		}
		records := make([]historyEvent, len(page.Records))
		for i := range page.Records {
			records[i] = shapeRecord(&page.Records[i], q.Boolean("showInput", true), q.Boolean("showHistoryOutput", false))
		}
		c.Response().Header().Set(HeaderContinuation, page.Continuation)
		return web.WriteJSON(c, http.StatusOK, records)
	}
}

// raiseEvent answers POST instances/{id}/raiseEvent/{name}. An empty body means null. The extension
// refuses an empty body, although its JavaScript client sends one for an event without data.
func (m instanceAPI) raiseEvent(id durable.InstanceID, name string) operation {
	return func(c echo.Context, _ web.Query) error {
		ctx := c.Request().Context()
		if len(name) > web.MaxName {
			return web.BadRequest("The name of an event must not exceed %d bytes.", web.MaxName)
		}
		payload, err := eventPayload(c)
		if err == nil {
			if err = m.instances.RaiseEvent(ctx, id, name, payload); err != nil {
				return err
			}
			return c.NoContent(http.StatusAccepted)
		}
		// Like the extension, report a missing or ended instance before an invalid body.
		state, statusErr := m.instances.Status(ctx, id, durable.Fetch{})
		switch {
		case statusErr != nil:
			return statusErr
		case state.Status.IsTerminal():
			return durable.ErrInstanceEnded
		}
		return err
	}
}

func eventPayload(c echo.Context) (json.RawMessage, error) {
	media, _, err := mime.ParseMediaType(c.Request().Header.Get(echo.HeaderContentType))
	if err != nil || media != echo.MIMEApplicationJSON {
		return nil, web.BadRequest("Only application/json request content is supported")
	}
	payload, err := web.ReadBody(c)
	if err == nil && payload == nil {
		payload = json.RawMessage("null")
	}
	return payload, err
}
