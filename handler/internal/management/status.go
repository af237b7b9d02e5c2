package management

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/jsontext"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/statusjson"
	"github.com/labstack/echo/v4"
)

const (
	// HeaderContinuation is the header with the token of the next page.
	HeaderContinuation = "x-ms-continuation-token"

	// retryStatus is when to ask again for a status that is not final, in
	// seconds.
	retryStatus = "5"
)

// A StatusPayload is what is told of an instance.
type StatusPayload = statusjson.Status[historyEvent]

// statusOf returns the payload of an instance, without history.
func (m *API) statusOf(state *provider.InstanceState) StatusPayload {
	return StatusPayload{
		Name:            state.Name,
		InstanceID:      state.Instance.InstanceID,
		RuntimeStatus:   state.Status.String(),
		Input:           PayloadJSON(state.Input),
		CustomStatus:    PayloadJSON(state.CustomStatus),
		Output:          PayloadJSON(state.Output),
		CreatedTime:     wholeSeconds(state.CreatedAt),
		LastUpdatedTime: wholeSeconds(state.LastUpdatedAt),
		Version:         state.Version,
		WaitsFor:        m.waitsFor(state),
	}
}

// wholeSeconds formats t as the extension does, which adds "Z" to .NET's
// format "s" (HttpApiHandler.cs, ConvertFrom).
func wholeSeconds(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05") + "Z" }

// PayloadJSON turns a stored payload into JSON: what is JSON stays what it is,
// nothing becomes null, blanks an empty string, and any other text, like a
// reason for termination, a string. So does JSON that is nested without end, or is not
// valid UTF-8, which a hub may have from other programs
// (ContextImplementations/DurableClient.cs, ParseToJToken).
func PayloadJSON(stored *string) json.RawMessage {
	switch {
	case stored == nil:
		return json.RawMessage("null")
	case strings.TrimSpace(*stored) == "":
		return json.RawMessage(`""`)
	case json.Valid([]byte(*stored)) && !web.TooDeep([]byte(*stored)) && utf8.ValidString(*stored):
		return json.RawMessage(*stored)
	}
	text, err := jsontext.Marshal(*stored)
	if err != nil {
		panic("a string cannot be encoded as JSON: " + err.Error())
	}
	return text
}

// status answers GET instances/{id}.
func (m *API) status(id durable.InstanceID) operation {
	return func(c echo.Context, q web.Query) error {
		ctx := c.Request().Context()
		fetch := statusFetch(q)
		showInput := fetch.Input
		state, _ := c.Get(stateKey).(*provider.InstanceState)
		if state == nil {
			var err error
			if state, err = m.instances.Status(ctx, id, fetch); err != nil {
				return err
			}
		}
		if !showInput {
			state.Input = nil
		}
		payload := m.statusOf(state)
		if q.Boolean("showHistory", false) && state.Status != history.Pending {
			events, err := m.instances.History(ctx, id)
			if err != nil {
				return err
			}
			payload.HistoryEvents = ShapeHistory(events, showInput, q.Boolean("showHistoryOutput", false))
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

// statusFetch returns what of an instance a request for its status is told.
func statusFetch(q web.Query) provider.Fetch {
	return provider.Fetch{Input: q.Boolean("showInput", true), Output: true}
}

// statusCode is the HTTP status that goes with a runtime status
// (HttpApiHandler.cs, HandleGetStatusRequestAsync).
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
func (m *API) list(c echo.Context, q web.Query) error {
	showInput := q.Boolean("showInput", true)
	size, err := q.PageSize()
	if err != nil {
		return err
	}
	page, err := m.instances.List(c.Request().Context(), provider.Query{
		CreatedFrom:  q.Time("createdTimeFrom"),
		CreatedTo:    q.Time("createdTimeTo"),
		Statuses:     q.Statuses("runtimeStatus"),
		IDPrefix:     q.Text("instanceIdPrefix"),
		Fetch:        provider.Fetch{Input: showInput, Output: true},
		PageSize:     size,
		Continuation: c.Request().Header.Get(HeaderContinuation),
	})
	if err != nil {
		return badToken(err)
	}
	payloads := make([]StatusPayload, len(page.Instances))
	for i, state := range page.Instances {
		payloads[i] = m.statusOf(state)
		if !showInput {
			payloads[i].Input = PayloadJSON(nil)
		}
	}
	c.Response().Header().Set(HeaderContinuation, page.Continuation)
	setUnreadable(c, len(page.Unreadable))
	return web.WriteJSON(c, http.StatusOK, payloads)
}

// badToken returns err, or the answer to a continuation token that the hub did not hand
// out.
func badToken(err error) error {
	if !errors.Is(err, provider.ErrContinuation) {
		return err
	}
	return web.AnswerWith(http.StatusBadRequest, web.WithCause("The continuation token is not one that this task hub returned.", err))
}
