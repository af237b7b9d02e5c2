package management

import (
	"errors"
	"net/http"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
	"github.com/labstack/echo/v4"
)

// tracking answers GET instances/{id}/tracking: a page of the audit of an
// instance.
func (m *API) tracking(id durable.InstanceID) operation {
	return func(c echo.Context, q web.Query) error {
		size, err := q.PageSize()
		if err != nil {
			return err
		}
		from := c.Request().Header.Get(HeaderContinuation)
		page, err := m.instances.Tracking(c.Request().Context(), id, provider.TrackingQuery{PageSize: size, Continuation: from})
		switch {
		case errors.Is(err, provider.ErrNotSupported):
			return web.AnswerWith(http.StatusNotImplemented, web.WithCause("This hub keeps no audit of its orchestrations.", err))
		case err != nil:
			return badToken(err)
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

// shapeRecord turns a record into what the management API tells of it: where it
// stands in the audit, and the event as a history shows it.
func shapeRecord(r *provider.TrackingRecord, showInput, showOutput bool) historyEvent {
	s := shape{showInput: showInput, showOutput: showOutput}
	s.add("ExecutionId", r.ExecutionID)
	s.add("SequenceNumber", r.SequenceNumber)
	s.add("Timestamp", ticksJSON(r.Event.Head().Timestamp))
	s.add("EventType", r.Event.Type().String())
	if id := r.Event.Head().EventID; id != history.NoEventID {
		s.add("EventId", id)
	}
	if id, ok := history.Completes(r.Event); ok {
		s.add("TaskScheduledId", id)
	}
	switch e := r.Event.(type) {
	case *history.ExecutionStarted:
		s.add("Name", e.Name)
		s.own(e)
	case *history.HistoryState:
		s.add("State", PayloadJSON(e.State))
	default:
		s.own(e)
	}
	if len(r.Shortened) > 0 {
		s.add("Shortened", r.Shortened)
	}
	return s.event
}
