package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler"
	"github.com/labstack/echo/v4"
)

// triggers are trigger functions that the real host can run without an extension bundle.
var triggers = []handler.Trigger{
	handler.Timer("Tick", "0 0 3 1 1 *", tick, handler.RunOnStartup, handler.FixedRetry(20, time.Second)),
	handler.Manual("Order", order),
	handler.Manual("Poison", func(context.Context, *handler.Invocation, string) error { panic("the function's own panic") }),
	handler.Manual("Overrun", overrun, handler.Timeout(time.Second)),
	handler.Warmup(func(_ context.Context, call *handler.Invocation) error {
		call.Logf("warm with invocation %s", call.ID)
		return nil
	}),
}

var ticks atomic.Int32

// tick fails in its first call and starts an instance in later calls.
func tick(ctx context.Context, call *handler.Invocation, info handler.TimerInfo) error {
	if ticks.Add(1) == 1 {
		return errors.New("the first tick fails")
	}
	tries := 0
	if call.Retry != nil {
		tries = call.Retry.RetryCount
	}
	call.Logf("tick past due %v after %d tries", info.IsPastDue, tries)
	_, err := durable.Start(ctx, call.Client, Steps, Walk{Steps: 2}, durable.InstanceID("started-by-tick"))
	return err
}

// order starts an instance. The payload is its ID.
func order(ctx context.Context, call *handler.Invocation, id string) error {
	_, err := durable.Start(ctx, call.Client, Steps, Walk{Steps: 3}, durable.InstanceID(id))
	call.Logf("ordered %s", id)
	return err
}

func overrun(context.Context, *handler.Invocation, string) error {
	time.Sleep(time.Hour)
	return nil
}

// addStreams adds routes with streamed responses, and routes that start work.
func addStreams(api *echo.Group, client *durable.Client) {
	proceed := make(chan struct{})
	api.POST("/stream/proceed", func(c echo.Context) error {
		proceed <- struct{}{}
		return c.NoContent(http.StatusNoContent)
	})
	// The second line is sent when a client calls /stream/proceed.
	api.GET("/stream", func(c echo.Context) error {
		c.Response().Header().Set(echo.HeaderContentType, "text/event-stream")
		c.Response().WriteHeader(http.StatusOK)
		for line := range 2 {
			if line > 0 {
				select {
				case <-proceed:
				case <-c.Request().Context().Done():
					return c.Request().Context().Err()
				}
			}
			if _, err := fmt.Fprintf(c.Response(), "data: %d\n\n", line); err != nil {
				return err
			}
			c.Response().Flush()
		}
		return nil
	})
	api.POST("/accept", func(c echo.Context) error { return c.NoContent(http.StatusAccepted) })
	api.POST("/start", func(c echo.Context) error {
		instance, err := durable.Start(c.Request().Context(), client, Steps, Walk{Steps: 1})
		if err != nil {
			return err
		}
		return handler.CheckStatus(c, instance.ID)
	})
}
