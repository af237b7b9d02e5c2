// Command e2eapp is the app of the end-to-end tests. The tests kill its process. Its functions fail in all
// ways in which functions can fail.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler"
	"github.com/durablefunctions-go/durablefunctions/handler/otlp"
	"github.com/durablefunctions-go/durablefunctions/handler/prometheus"
	"github.com/labstack/echo/v4"
)

func main() {
	app := handler.App{
		Registrations: append(blocking(),
			durable.Orchestrator("Steps", Steps),
			durable.Activity("Step", Step),
			durable.Orchestrator("Together", Together),
			durable.Orchestrator("Rests", Rests),
			durable.Orchestrator("ChildSteps", ChildSteps),
			durable.Orchestrator("Stages", Stages),
			durable.Orchestrator("Tallies", Tallies),
			durable.Orchestrator("Hears", Hears),
			durable.Orchestrator("ActivityPanics", ActivityPanics),
			durable.Activity("Panic", Panic),
			durable.Orchestrator("OrchestratorPanics", OrchestratorPanics),
			durable.Orchestrator("ActivityFails", ActivityFails),
			durable.Activity("Fail", Fail),
			durable.Orchestrator("LogsAndFails", LogsAndFails),
			durable.Orchestrator("ActivityUnknown", ActivityUnknown),
			durable.Orchestrator("Waits", Waits),
			durable.Orchestrator("TimesOut", TimesOut),
			durable.Orchestrator("Naps", Naps),
			durable.Orchestrator("Blocks", Blocks),
			durable.Orchestrator("NeedsFile", NeedsFile),
			durable.Activity("Find", Find),
			durable.Orchestrator("ChildNeedsFile", ChildNeedsFile),
			durable.Orchestrator("ChildWaits", ChildWaits),
			durable.Orchestrator("Weighs", Weighs),
			durable.Activity("Weigh", Weigh),
			durable.Entity("Counter", durable.Op("add", (*Counter).Add)),
		),
		Triggers:  triggers,
		Metrics:   prometheus.New(),
		Telemetry: otlp.Export,
		Routes: func(api *echo.Group, client *durable.Client) {
			addStreams(api, client)
			api.GET("/panic", func(echo.Context) error { panic("the route's own panic") })
			api.POST("/family/:id/terminate", terminateFamily(client))
		},
	}
	if os.Getenv("OTEL_METRICS_EXPORTER") == "otlp" {
		app.Metrics = nil // the exporter is then the only receiver of metrics
	}
	if lease := os.Getenv(leaseVariable); lease != "" {
		if err := serve(app, lease); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	handler.Main(app)
}

// Counter is an entity with a running total.
type Counter struct {
	Total int `json:"total"`
}

// Add adds n to the total and returns it.
func (c *Counter) Add(_ *durable.EntityContext, n int) (int, error) {
	c.Total += n
	return c.Total, nil
}

// Walk is the input of [Steps]: a number of activities in sequence. Each activity takes DelayMillis and
// appends a line to the file Trace.
type Walk struct {
	Steps       int    `json:"steps"`
	DelayMillis int    `json:"delayMillis"`
	Trace       string `json:"trace"`
}

// Stride is one step of a Walk.
type Stride struct {
	Walk
	Number int `json:"number"`
}

// Steps returns the squares of 1 to w.Steps.
func Steps(ctx *durable.Context, w Walk) ([]int, error) {
	var squares []int
	for n := 1; n <= w.Steps; n++ {
		square, err := durable.CallActivity(ctx, Step, Stride{w, n}).Await()
		if err != nil {
			return nil, err
		}
		squares = append(squares, square)
	}
	return squares, nil
}

// Step returns the square of s.Number.
func Step(ctx context.Context, s Stride) (int, error) {
	if s.Trace != "" {
		if err := appendLine(s.Trace, fmt.Sprintf("%d %d", s.Number, os.Getpid())); err != nil {
			return 0, err
		}
	}
	select {
	case <-time.After(time.Duration(s.DelayMillis) * time.Millisecond):
		return s.Number * s.Number, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func appendLine(path, line string) error {
	f, err := os.OpenFile(filepath.Clean(path), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Close())
}

// Weighs returns the length of a text, computed by an activity.
func Weighs(ctx *durable.Context, text string) (int, error) {
	return durable.CallActivity(ctx, Weigh, text).Await()
}

// Weigh returns the length of a text.
func Weigh(_ context.Context, text string) (int, error) { return len(text), nil }

// ActivityPanics calls an activity that panics.
func ActivityPanics(ctx *durable.Context, _ any) (string, error) {
	return durable.CallActivity(ctx, Panic, "the activity's own panic").Await()
}

// Panic panics with text.
func Panic(_ context.Context, text string) (string, error) { panic(text) }

// OrchestratorPanics panics after its first activity.
func OrchestratorPanics(ctx *durable.Context, _ any) (string, error) {
	n, err := durable.CallActivity(ctx, Step, Stride{Number: 1}).Await()
	if err != nil {
		return "", err
	}
	var none []string
	return none[n], nil
}

// ActivityFails calls an activity that returns an error.
func ActivityFails(ctx *durable.Context, text string) (string, error) {
	return durable.CallActivity(ctx, Fail, text).Await()
}

// Fail returns an error with text.
func Fail(_ context.Context, text string) (string, error) { return "", errors.New(text) }

// LogsAndFails logs a line of each severity with the word that the host looks for, and then fails.
func LogsAndFails(ctx *durable.Context, text string) (string, error) {
	ctx.Logger().Info("information that warns")
	ctx.Logger().Warn("warning of the function")
	ctx.Logger().Error("error that warns")
	return "", errors.New(text)
}

// ActivityUnknown calls an activity that is not registered.
func ActivityUnknown(ctx *durable.Context, _ any) (string, error) {
	return durable.ActivityName[int, string]("NobodyHasThis").Call(ctx, 1).Await()
}

// Answer is the event that Waits and TimesOut wait for.
const Answer = durable.Event[string]("Answer")

// Waits waits for an Answer without a timeout and returns its payload.
func Waits(ctx *durable.Context, _ any) (string, error) {
	ctx.SetCustomStatus("waiting for an answer")
	return Answer.Wait(ctx).Await()
}

// Naps sleeps for the given number of seconds.
func Naps(ctx *durable.Context, seconds int) (string, error) {
	ctx.Sleep(time.Duration(seconds) * time.Second)
	return "awake", nil
}

// Blocks creates one file and returns when another file exists. An orchestrator must not do this, because it
// makes no durable call meanwhile.
func Blocks(_ *durable.Context, files struct{ Begun, Go string }) (string, error) {
	return blockUntil(files.Begun, files.Go) //durablecheck:ignore the tests need an orchestrator that blocks
}

func blockUntil(begun, ends string) (string, error) {
	if err := appendLine(begun, "begun"); err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(ends); err == nil {
			return "went", nil
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TimesOut waits for an Answer for one second.
func TimesOut(ctx *durable.Context, _ any) (string, error) {
	answer, err := Answer.Wait(ctx).AwaitTimeout(time.Second)
	if errors.Is(err, durable.ErrTimeout) {
		return "nobody answered", nil
	}
	return answer, err
}
