package management

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
	"github.com/labstack/echo/v4"
)

// accepted is an operation on an instance that needs nothing but a reason and is
// answered with status 202.
func accepted(id durable.InstanceID, do func(ctx context.Context, id durable.InstanceID, reason string) error) operation {
	return func(c echo.Context, q web.Query) error {
		if err := do(c.Request().Context(), id, q.Text("reason")); err != nil {
			return err
		}
		return c.NoContent(http.StatusAccepted)
	}
}

func (m *API) terminate(ctx context.Context, id durable.InstanceID, reason string) error {
	return m.instances.Terminate(ctx, id, reason)
}

// rewind answers POST instances/{id}/rewind. Unlike others it says why it
// refuses, as a JSON string (HttpApiHandler.cs, HandleRewindInstanceRequestAsync).
func (m *API) rewind(id durable.InstanceID) operation {
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
		case errors.Is(err, durable.ErrNotSupported):
			return web.AnswerWith(http.StatusNotImplemented, web.WithCause("Rewind is not supported by the underlying storage provider.", err))
		}
		return err
	}
}

// restart answers POST instances/{id}/restart, as a start is answered
// (HttpApiHandler.cs, HandleRestartInstanceRequestAsync).
func (m *API) restart(id durable.InstanceID) operation {
	return func(c echo.Context, q web.Query) error {
		patience, err := patienceOf(q)
		if err != nil {
			return err
		}
		var opts []durable.StartOption
		if !q.Boolean("restartWithNewInstanceId", true) {
			opts = append(opts, id)
		}
		restarted, err := m.instances.Restart(c.Request().Context(), id, opts...)
		if exists, ok := errors.AsType[*provider.InstanceExistsError](err); ok {
			return web.AnswerWith(http.StatusConflict, web.WithCause("A non-terminal instance with this instance ID already exists.", exists))
		}
		switch {
		case errors.Is(err, durable.ErrInstanceNotFound):
			return web.AnswerWith(http.StatusBadRequest, web.WithCause("InstanceId does not match a valid orchestration instance.", err))
		case err != nil:
			return err
		}
		if len(m.knownOrchestrators()) > 0 {
			state, err := m.instances.Status(c.Request().Context(), restarted, provider.Fetch{})
			if err == nil { // else it is started all the same
				LinksOf(c).warning = m.warnOfStart(state.Name, state.Version)
			}
		}
		return m.answerStarted(c, q, restarted, patience)
	}
}
