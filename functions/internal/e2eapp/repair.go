package main

import (
	"context"
	"net/http"
	"os"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/labstack/echo/v4"
)

// NeedsFile returns "found" if the file exists, and fails otherwise.
func NeedsFile(ctx *durable.Context, path string) (string, error) {
	if _, err := durable.CallActivity(ctx, Step, Stride{Number: 1}).Await(); err != nil {
		return "", err
	}
	return durable.CallActivity(ctx, Find, path).Await()
}

// Find returns "found" if the file exists.
func Find(_ context.Context, path string) (string, error) {
	_, err := os.Stat(path)
	return "found", err
}

// ChildNeedsFile runs NeedsFile in a child.
func ChildNeedsFile(ctx *durable.Context, path string) (string, error) {
	return durable.CallSubOrchestrator(ctx, NeedsFile, path, ctx.InstanceID()+"-child").Await()
}

// ChildWaits runs Waits in a child.
func ChildWaits(ctx *durable.Context, _ any) (string, error) {
	return durable.CallSubOrchestrator(ctx, Waits, any(nil), ctx.InstanceID()+"-child").Await()
}

// terminateFamily returns the handler of POST /family/{id}/terminate, which terminates an instance with its
// children.
func terminateFamily(client *durable.Client) echo.HandlerFunc {
	return func(c echo.Context) error {
		if err := client.Terminate(c.Request().Context(), durable.InstanceID(c.Param("id")), "enough", durable.Recursive); err != nil {
			return err
		}
		return c.NoContent(http.StatusNoContent)
	}
}
