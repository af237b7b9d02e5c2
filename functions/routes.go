package main

import (
	"encoding/json"
	"io"
	"net/http"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler"
	"github.com/labstack/echo/v4"
)

// routes are the app's own HTTP API, below /api.
func routes(api *echo.Group, client *durable.Client) {
	// Starts an orchestration by name. The optional body is its input. The response
	// contains the URLs of its status.
	api.POST("/orchestrators/:name", func(c echo.Context) error {
		input, err := io.ReadAll(c.Request().Body)
		if err != nil {
			return err
		}
		if len(input) > 0 && !json.Valid(input) {
			return echo.NewHTTPError(http.StatusBadRequest, "the body must be JSON: it is the orchestration's input")
		}
		var options []durable.StartOption
		if id := c.QueryParam("instanceId"); id != "" {
			options = append(options, durable.InstanceID(id))
		}
		id, err := client.StartByName(c.Request().Context(), c.Param("name"), input, options...)
		if err != nil {
			return err
		}
		return handler.CheckStatus(c, id)
	})
}
