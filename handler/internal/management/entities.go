package management

import (
	"bytes"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/jsontext"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
	"github.com/labstack/echo/v4"
)

// entityAPI implements the operations on entities.
type entityAPI struct{ *API }

// entityStatus is an entity in a list (WebJobs.Extensions.DurableTask/DurableEntityStatus.cs).
type entityStatus struct {
	EntityID          durable.EntityID `json:"entityId"`
	LastOperationTime string           `json:"lastOperationTime"`
	State             json.RawMessage  `json:"state"`
}

// netTime is .NET's JSON format of a time, without trailing zeros.
const netTime = "2006-01-02T15:04:05.9999999Z"

// emptyKey represents the empty key in the URL that reads an entity (HttpApiHandler.cs,
// HandleGetEntityRequestAsync).
const emptyKey = "$"

// listEntities answers GET entities and entities/{name} (HttpApiHandler.cs,
// HandleListEntitiesRequestAsync).
func (m entityAPI) listEntities(name string) operation {
	return func(c echo.Context, q web.Query) error {
		size, err := q.PageSize()
		if err != nil {
			return err
		}
		page, err := m.instances.ListEntities(c.Request().Context(), durable.EntityQuery{
			Name:              name,
			LastOperationFrom: q.Time("lastOperationTimeFrom"),
			LastOperationTo:   q.Time("lastOperationTimeTo"),
			FetchState:        q.Boolean("fetchState", false),
			PageSize:          size,
			Continuation:      c.Request().Header.Get(HeaderContinuation),
		})
		if err != nil {
			return BadToken(err)
		}
		statuses := make([]entityStatus, len(page.Entities))
		for i, s := range page.Entities {
			statuses[i] = entityStatus{s.ID, s.LastOperation.UTC().Truncate(100 * time.Nanosecond).Format(netTime), s.State}
		}
		for _, e := range page.Unreadable {
			m.Unreadable.Add(m.logger, e.InstanceID, e.Cause)
		}
		c.Response().Header().Set(HeaderContinuation, page.Continuation)
		setUnreadable(c, len(page.Unreadable))
		return web.WriteJSON(c, http.StatusOK, statuses)
	}
}

// readEntity answers GET entities/{name}/{key}.
func (m entityAPI) readEntity(name, key string) operation {
	return func(c echo.Context, _ web.Query) error {
		if key == emptyKey {
			key = ""
		}
		s, err := m.instances.Entity(c.Request().Context(), durable.EntityID{Name: name, Key: key})
		if errors.Is(err, durable.ErrEntityNotFound) {
			return notFoundEmpty(c)
		}
		if err != nil {
			return err
		}
		return web.WriteJSON(c, http.StatusOK, s.State)
	}
}

// signalEntity answers POST entities/{name}/{key}.
func (m entityAPI) signalEntity(name, key string) operation {
	return func(c echo.Context, q web.Query) error { return m.signal(c, name, key, q.Text("op")) }
}

// deleteEntity answers DELETE entities/{name}/{key}.
func (m entityAPI) deleteEntity(name, key string) operation {
	return func(c echo.Context, _ web.Query) error { return m.signal(c, name, key, "delete") }
}

// signal signals an entity with the request's body as input (HttpApiHandler.cs,
// HandlePostEntityOperationRequestAsync). It does not check the name: another worker may have the
// entity.
func (m entityAPI) signal(c echo.Context, name, key, operation string) error {
	if len(name)+len(operation) > web.MaxName {
		return web.BadRequest("The names of an entity and its operation must not exceed %d bytes.", web.MaxName)
	}
	input, err := operationInput(c)
	if err != nil {
		return err
	}
	if err := m.instances.SignalEntity(c.Request().Context(), durable.EntityID{Name: name, Key: key}, operation, input); err != nil {
		return err
	}
	return c.NoContent(http.StatusAccepted)
}

// operationInput returns a request's body: JSON if the content type is JSON, otherwise a text. It
// returns nil for an empty body.
func operationInput(c echo.Context) (json.RawMessage, error) {
	text, err := web.BodyText(c)
	if err != nil || len(text) == 0 {
		return nil, err
	}
	media, _, err := mime.ParseMediaType(c.Request().Header.Get(echo.HeaderContentType))
	if err != nil || media != echo.MIMEApplicationJSON {
		return jsontext.Marshal(string(text))
	}
	input, err := web.ParseJSON(text, func(err error) error { return web.BadRequest("Could not parse JSON content: %v", err) })
	if err != nil || input == nil {
		return nil, err
	}
	var compact bytes.Buffer
	err = json.Compact(&compact, input)
	return compact.Bytes(), err
}
