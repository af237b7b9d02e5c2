package handler

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
	"github.com/labstack/echo/v4"
)

const (
	// DefaultInvocationTimeout bounds a run of a [Trigger]'s function that has no
	// [Timeout], if the host allows as much.
	DefaultInvocationTimeout = 30 * time.Minute

	// invocationGrace is the most that a function may go on after its context has
	// ended.
	invocationGrace = 2 * time.Second
)

// parseFunctionTimeout reads host.json's functionTimeout; -1 stands for none
// (azure-functions-host: Config/ScriptJobHostOptionsSetup.cs).
func parseFunctionTimeout(text string) (limit time.Duration, ok bool) {
	if text == "-1" {
		return -1, true
	}
	limit, err := settings.ParseTimeSpan(text)
	return limit, err == nil && limit >= time.Second
}

// hostLimit returns how long the host lets an invocation run, 0 if without end.
func (c Config) hostLimit() time.Duration {
	switch {
	case c.FunctionTimeout > 0:
		return c.FunctionTimeout
	case c.FunctionTimeout < 0 || !c.BehindHost:
		return 0
	case c.plan == settings.PlanConsumption:
		return 5 * time.Minute
	}
	return 30 * time.Minute
}

// functionTimeoutText returns the host's limit as host.json has it.
func (c Config) functionTimeoutText() string {
	c.BehindHost = true
	if limit := c.hostLimit(); limit > 0 {
		return settings.FormatTimeSpan(limit)
	}
	return "-1"
}

// limitOf returns how long a run of a function may take: what it was given,
// and in any case so much less than what the host allows that the answer comes
// first.
func (c Config) limitOf(t Trigger) time.Duration {
	limit := t.timeout
	if limit == 0 {
		limit = DefaultInvocationTimeout
	}
	if most := c.hostLimit(); most > 0 {
		limit = min(limit, most-min(most/5, 10*time.Second))
	}
	return limit
}

// addTriggers adds the routes at which the host starts functions. It comes
// after the app's own routes, so that it sees those.
func (s *Server) addTriggers(triggers []Trigger, client *durable.Client) error {
	if err := checkTriggers(triggers); err != nil {
		return err
	}
	if len(triggers) > 0 && s.cfg.BehindHost && s.cfg.RoutePrefix == "" && s.cfg.forwards {
		return fmt.Errorf("with an empty %s and %s, callers of HTTP functions could start functions that have triggers, such as %s: "+
			"set a route prefix, or enableProxyingHttpRequest instead", routePrefixPath, forwardingPath, triggers[0].name)
	}
	if len(triggers) > 0 && !s.cfg.BehindHost {
		s.cfg.Notices = append(s.cfg.Notices, fmt.Sprintf("Without the Functions host nothing starts the functions that have triggers, such as %s.", triggers[0].name))
	}
	taken := map[string]bool{}
	for _, r := range s.echo.Routes() {
		taken[r.Method+" "+r.Path] = true
	}
	for _, t := range triggers {
		if taken[http.MethodPost+" /"+t.name] {
			return fmt.Errorf("the route POST /%s is that at which the host starts function %q: give one of them another name", t.name, t.name)
		}
		s.echo.POST("/"+t.name, s.invoke(t, client))
	}
	return nil
}

// invoke answers the host's request to run a function.
func (s *Server) invoke(t Trigger, client *durable.Client) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if !s.isFromHost(r) {
			return echo.ErrNotFound
		}
		call, payload, err := readInvocation(r.Body, t)
		if err != nil {
			s.logger.Error("invocation refused", "function", t.name, "invocationId", requestID(c), "reason", oneLine(err))
			return writeJSON(c, http.StatusInternalServerError, errorBody{Message: oneLine(err)})
		}
		call.ID, call.Client = r.Header.Get(headerInvocationID), client
		call.logger = s.logger.With("function", t.name, "invocationId", call.ID)
		result, err := s.runFunction(r.Context(), t, call, payload)
		if err != nil {
			for _, line := range call.abandon() {
				call.logger.Info(line)
			}
			call.logger.Error("function failed", "error", oneLine(err))
			return writeJSON(c, http.StatusInternalServerError, errorBody{Message: oneLine(err)})
		}
		return writeJSON(c, http.StatusOK, result)
	}
}

// isFromHost reports whether a request is the host's own. Callers of HTTP
// functions can send anything: what the host wraps is marked, and what it proxies
// has headers that say for whom. What it forwards is just as the caller sent it,
// any Host included, so that [Server.addTriggers] sees to it that nothing forwarded
// can have the path of a function.
func (s *Server) isFromHost(r *http.Request) bool {
	return s.cfg.BehindHost && r.Host == s.cfg.Address && r.Context().Value(callersKey{}) == nil &&
		r.Header.Get("X-Forwarded-Host") == "" && r.Header.Get("X-Forwarded-For") == "" && r.Header.Get("X-Original-Host") == ""
}

// runFunction runs a function and returns what it comes to. A function that
// panics has failed, and so has one that is still running a moment after its
// time is over: that one is left to itself, since nothing can end it, but the
// host must not wait until it kills the whole program
// (azure-functions-host: WebHost/WebScriptHostExceptionHandler.cs).
func (s *Server) runFunction(ctx context.Context, t Trigger, call *Invocation, payload []byte) (invocationResult, error) {
	limit := s.cfg.limitOf(t)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("function %s has run for %v, which is its limit", t.name, limit))
	defer cancel()
	done := make(chan error, 1)
	go func() { // waited for below, unless it does not end
		err := errGoexit
		defer func() { done <- err }()
		err = runGuarded(ctx, t, call, payload)
	}()
	if err := awaitFunction(ctx, done, min(invocationGrace, limit/10)); err != nil {
		return invocationResult{}, err
	}
	return call.result()
}

func awaitFunction(ctx context.Context, done <-chan error, patience time.Duration) error {
	select {
	case err := <-done:
		return withCauseOf(ctx, err)
	case <-ctx.Done():
	}
	grace := time.NewTimer(patience)
	defer grace.Stop()
	select {
	case err := <-done:
		return withCauseOf(ctx, err)
	case <-grace.C:
		return fmt.Errorf("%w, and does not end: a function must return when its context ends", context.Cause(ctx))
	}
}

// withCauseOf says of an error that a context ended why it did.
func withCauseOf(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}

// runGuarded runs the function itself. A panic is an error, and is logged with
// its stack.
func runGuarded(ctx context.Context, t Trigger, call *Invocation, payload []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			call.logger.Error("panic in a function", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return t.run(ctx, call, payload)
}

// errGoexit is for a function that ended its goroutine instead of returning.
var errGoexit = errors.New("the function ended its goroutine with runtime.Goexit")
