package handler

import (
	"encoding/json"
	"net/http"

	"github.com/labstack/echo/v4"
)

// listEntities answers GET entities and entities/{name}.
func (m *management) listEntities(string) operation {
	return func(c echo.Context, _ query) error {
		c.Response().Header().Set(headerContinuation, "")
		return writeJSON(c, http.StatusOK, []json.RawMessage{})
	}
}

// readEntity answers GET entities/{name}/{key}.
func (m *management) readEntity(string, string) operation {
	return func(c echo.Context, _ query) error { return notFoundEmpty(c) }
}

// signalEntity answers POST entities/{name}/{key}.
func (m *management) signalEntity(name, _ string) operation {
	return func(echo.Context, query) error {
		return badRequest("The entity %q doesn't exist: this app has no entities.", name)
	}
}

// deleteEntity answers DELETE entities/{name}/{key}.
func (m *management) deleteEntity(name, key string) operation { return m.signalEntity(name, key) }
