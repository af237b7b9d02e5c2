package management

import (
	"errors"
	"net/http"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
	"github.com/labstack/echo/v4"
)

// A purgePayload says what a purge removed
// (WebJobs.Extensions.DurableTask/PurgeHistoryResult.cs).
type purgePayload struct {
	InstancesDeleted int `json:"instancesDeleted"`
}

// purge answers DELETE instances/{id}. It refuses an instance that has not
// ended with a sentence, as a JSON string (HttpApiHandler.cs,
// HandleDeleteHistoryByIdRequestAsync).
func (m *API) purge(id durable.InstanceID) operation {
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

// purgeMany answers DELETE instances. Whatever statuses are asked for, only
// instances that have ended are purged (HttpApiHandler.cs,
// HandleDeleteHistoryWithFiltersRequestAsync).
func (m *API) purgeMany(c echo.Context, q web.Query) error {
	from, ok := web.ParseTime(q.Text("createdTimeFrom"))
	if !ok {
		return web.WriteJSON(c, http.StatusBadRequest, "Please provide value for 'createdTimeFrom' parameter.")
	}
	to, ok := web.ParseTime(q.Text("createdTimeTo"))
	if !ok {
		to = time.Now()
	}
	result, err := m.instances.PurgeMany(c.Request().Context(), durable.PurgeFilter{
		CreatedFrom: from, CreatedTo: to, Statuses: q.Statuses("runtimeStatus"), IDPrefix: q.Text("instanceIdPrefix"),
	})
	setUnreadable(c, result.Unreadable)
	switch {
	case err != nil:
		return err
	case result.Instances == 0:
		return c.NoContent(http.StatusNotFound)
	}
	return web.WriteJSON(c, http.StatusOK, purgePayload{result.Instances})
}
