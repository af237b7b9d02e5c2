package handler

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/jsontext"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/secrets"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/triggers"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
	"github.com/labstack/echo/v4"
)

// An Invocation is one run of a [Trigger]'s function. Its methods may be called concurrently until the
// function returns. The zero value is usable, for tests of functions.
type Invocation struct {
	// ID identifies the run in the host. Function is the name of the function.
	ID       string
	Function string

	// Client is a client of the app's task hub.
	Client *durable.Client

	// Retry is set if the function has a retry policy and its trigger supports retries.
	Retry *RetryContext

	logger *slog.Logger
	values triggers.Call
}

// A RetryContext describes the current attempt of a run.
type RetryContext struct {
	RetryCount    int             // 0 for the first attempt
	MaxRetryCount int             // -1 means no limit
	Exception     json.RawMessage // the host's report of the previous failure; nil if it sent none
}

// Metadata decodes the trigger's metadata into a map or a struct. It matches struct fields like package
// encoding/json. A field may be text, a number, a time, bytes, a slice of these, or a struct:
//
//	var message struct {
//		ID            string
//		DequeueCount  int
//		InsertionTime time.Time
//	}
//	err := call.Metadata(&message)
//
// The metadata also contains the parameters of the trigger's path, such as {name} in "pictures/{name}",
// and the properties of a payload that is a JSON object. Such a parameter or property can hide metadata
// with the same name.
func (c *Invocation) Metadata(into any) error {
	if err := c.values.Metadata(into); err != nil {
		return fmt.Errorf("decode the metadata of function %s: %w", c.Function, err)
	}
	return nil
}

// Logf adds a line to the host's log of this run. The host gets the lines when the function succeeds.
// If the function fails, the lines go to the app's log.
func (c *Invocation) Logf(format string, args ...any) {
	c.values.Log(fmt.Sprintf(format, args...))
}

// Logger returns the app's logger with the function's name and the run's ID as attributes.
func (c *Invocation) Logger() *slog.Logger {
	if c.logger == nil {
		return slog.Default()
	}
	return c.logger
}

const (
	// DefaultInvocationTimeout is the time limit of a function without a [Timeout], unless the limit of
	// the host is lower.
	DefaultInvocationTimeout = 30 * time.Minute
)

// parseFunctionTimeout parses functionTimeout of host.json. -1 means no limit (azure-functions-host:
// Config/ScriptJobHostOptionsSetup.cs).
func parseFunctionTimeout(text string) (limit time.Duration, ok bool) {
	if text == "-1" {
		return -1, true
	}
	limit, err := settings.ParseTimeSpan(text)
	return limit, err == nil && limit >= time.Second
}

// An invoker answers the host's requests that run functions with triggers. It also answers requests of
// HTTP functions that the host wraps in JSON.
type invoker struct {
	cfg     *Config
	logger  *slog.Logger
	echo    *echo.Echo
	wrapped sync.Once // logs the first wrapped request
}

// add adds a route for each trigger. Call it after the app's own routes are added.
func (i *invoker) add(all []Trigger, client *durable.Client) error {
	if err := triggers.Check(describe(all)); err != nil {
		return err
	}
	if len(all) > 0 && i.cfg.BehindHost && i.cfg.RoutePrefix == "" && i.cfg.forwards {
		return fmt.Errorf("with an empty %s and %s, callers of HTTP functions could start functions that have triggers, such as %s: "+
			"set a route prefix, or enableProxyingHttpRequest instead", routePrefixPath, forwardingPath, all[0].Name())
	}
	if len(all) > 0 && !i.cfg.BehindHost {
		i.cfg.Notices = append(i.cfg.Notices, fmt.Sprintf("Without the Functions host nothing starts the functions that have triggers, such as %s.", all[0].Name()))
	}
	taken := map[string]bool{}
	for _, r := range i.echo.Routes() {
		taken[r.Method+" "+r.Path] = true
	}
	for _, t := range all {
		if taken[http.MethodPost+" /"+t.Name()] {
			return fmt.Errorf("the app's route POST /%s conflicts with function %q: rename one of them", t.Name(), t.Name())
		}
		i.echo.POST("/"+t.Name(), i.invoke(t, client))
	}
	return nil
}

// invoke returns the handler that runs t when the host requests it.
func (i *invoker) invoke(t Trigger, client *durable.Client) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if !i.isFromHost(r) {
			return echo.ErrNotFound
		}
		call := &Invocation{ID: r.Header.Get(web.HeaderInvocationID), Function: t.Name(), Client: client}
		call.logger = i.logger.With("function", call.Function, "invocationId", call.ID)
		payload, err := call.values.Read(r.Body, &t.function)
		if err == nil {
			err = call.values.Retry(&call.Retry)
		}
		if err != nil {
			i.logger.Error("invocation refused", "function", t.Name(), "invocationId", web.RequestID(c), "reason", secrets.Line(err))
			return web.WriteJSON(c, http.StatusInternalServerError, web.ErrorBody{Message: secrets.Line(err)})
		}
		err = triggers.Run(r.Context(), t.Name(), i.cfg.timeLimitOf(t), call.logger, func(ctx context.Context) error { return t.run(ctx, call, payload) })
		var result triggers.Result
		if err == nil {
			result, err = call.values.Result()
		}
		if err != nil {
			for _, line := range call.values.Abandon() {
				call.logger.Info(line)
			}
			call.logger.Error("function failed", "error", secrets.Line(err))
			return web.WriteJSON(c, http.StatusInternalServerError, web.ErrorBody{Message: secrets.Line(err)})
		}
		return web.WriteJSON(c, http.StatusOK, result)
	}
}

// isFromHost reports whether the host itself sent r, not a caller of an HTTP function. Unwrapped
// requests of callers are marked in their context. Proxied requests have headers about the caller.
// Forwarded requests arrive as the caller sent them, including Host; [invoker.add] ensures that none has
// the path of a function.
func (i *invoker) isFromHost(r *http.Request) bool {
	return i.cfg.BehindHost && r.Host == i.cfg.Address && r.Context().Value(callersKey{}) == nil &&
		r.Header.Get("X-Forwarded-Host") == "" && r.Header.Get("X-Forwarded-For") == "" && r.Header.Get("X-Original-Host") == ""
}

// notFound answers requests without a route. Among them it recognizes requests of the host's default
// invocation protocol by their body. The host uses that protocol for functions with other triggers, and
// for HTTP functions whose requests it cannot or may not pass on unchanged (azure-functions-host:
// Workers/Http/DefaultHttpWorkerService.cs).
func (i *invoker) notFound(c echo.Context) error {
	r := c.Request()
	name := strings.Trim(r.URL.Path, "/")
	if r.Method != http.MethodPost || name == "" || strings.Contains(name, "/") || !i.isFromHost(r) {
		return echo.ErrNotFound
	}
	body, err := web.ReadAll(r)
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge || errors.Is(err, web.ErrBodyMemory) {
		return err
	}
	var envelope struct{ Data, Metadata map[string]json.RawMessage }
	if err != nil || json.Unmarshal(body, &envelope) != nil || envelope.Data == nil || envelope.Metadata == nil {
		return echo.ErrNotFound
	}
	for _, input := range envelope.Data {
		if request, ok := wrappedRequestIn(input); ok {
			return i.answerWrapped(c, name, request)
		}
	}
	message := fmt.Sprintf("Function %q has a trigger that this app does not serve: "+
		"add the function to App.Triggers, or remove its folder with -write-functions.", name)
	i.logger.Error("invocation refused", "function", name, "reason", message)
	return web.WriteJSON(c, http.StatusInternalServerError, web.ErrorBody{Message: message})
}

// answerWrapped lets the app's routes answer a request that the host wrapped, and wraps the answer. The
// outer answer must have status 200 and a body. Otherwise the host returns no reason to its caller, or
// never completes the invocation.
func (i *invoker) answerWrapped(c echo.Context, name string, wrapped wrappedRequest) error {
	i.wrapped.Do(func() {
		i.logger.Warn("the host wraps HTTP requests in JSON instead of passing them on: answers cannot stream or be binary; " +
			"set customHandler.enableProxyingHttpRequest and, for older hosts, enableForwardingHttpRequest to true in host.json")
	})
	answer := &recordedAnswer{header: http.Header{}}
	inner, err := wrapped.request(c.Request())
	if err != nil {
		return web.BadRequest("The request to function %q is not valid: %v", name, err)
	}
	i.echo.ServeHTTP(answer, inner)
	type httpOutput struct {
		StatusCode int               `json:"statusCode"`
		Headers    map[string]string `json:"headers"`
		Body       string            `json:"body"`
	}
	output := httpOutput{cmp.Or(answer.status, http.StatusOK), map[string]string{}, answer.body.String()}
	if !utf8.ValidString(output.Body) {
		answer.header.Set("Content-Type", web.ContentTypeJSON)
		message, err := jsontext.Marshal(web.ErrorBody{Message: "The answer is not text, and the host wraps answers in JSON. " +
			"Set customHandler.enableProxyingHttpRequest, or on older hosts enableForwardingHttpRequest, to true in host.json."})
		if err != nil {
			return err
		}
		output.StatusCode, output.Body = http.StatusNotImplemented, string(message)
	}
	for name, values := range answer.header {
		output.Headers[name] = strings.Join(values, ", ")
	}
	return web.WriteJSON(c, http.StatusOK, struct {
		Outputs     map[string]httpOutput
		Logs        []string
		ReturnValue any
	}{map[string]httpOutput{"res": output}, []string{}, nil})
}
