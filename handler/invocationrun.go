package handler

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/secrets"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/triggers"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
	"github.com/labstack/echo/v4"
)

const (
	// DefaultInvocationTimeout bounds a run of a [Trigger]'s function that has no
	// [Timeout], if the host allows as much.
	DefaultInvocationTimeout = 30 * time.Minute
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
	limit := t.function.Timeout
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
func (s *Server) addTriggers(all []Trigger, client *durable.Client) error {
	if err := triggers.Check(describe(all)); err != nil {
		return err
	}
	if len(all) > 0 && s.cfg.BehindHost && s.cfg.RoutePrefix == "" && s.cfg.forwards {
		return fmt.Errorf("with an empty %s and %s, callers of HTTP functions could start functions that have triggers, such as %s: "+
			"set a route prefix, or enableProxyingHttpRequest instead", routePrefixPath, forwardingPath, all[0].Name())
	}
	if len(all) > 0 && !s.cfg.BehindHost {
		s.cfg.Notices = append(s.cfg.Notices, fmt.Sprintf("Without the Functions host nothing starts the functions that have triggers, such as %s.", all[0].Name()))
	}
	taken := map[string]bool{}
	for _, r := range s.echo.Routes() {
		taken[r.Method+" "+r.Path] = true
	}
	for _, t := range all {
		if taken[http.MethodPost+" /"+t.Name()] {
			return fmt.Errorf("the route POST /%s is that at which the host starts function %q: give one of them another name", t.Name(), t.Name())
		}
		s.echo.POST("/"+t.Name(), s.invoke(t, client))
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
		call := &Invocation{ID: r.Header.Get(web.HeaderInvocationID), Function: t.Name(), Client: client}
		call.logger = s.logger.With("function", call.Function, "invocationId", call.ID)
		payload, err := call.values.Read(r.Body, &t.function)
		if err == nil {
			err = call.values.Retry(&call.Retry)
		}
		if err != nil {
			s.logger.Error("invocation refused", "function", t.Name(), "invocationId", web.RequestID(c), "reason", secrets.Line(err))
			return web.WriteJSON(c, http.StatusInternalServerError, web.ErrorBody{Message: secrets.Line(err)})
		}
		err = triggers.Run(r.Context(), t.Name(), s.cfg.limitOf(t), call.logger, func(ctx context.Context) error { return t.run(ctx, call, payload) })
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

// isFromHost reports whether a request is the host's own. Callers of HTTP
// functions can send anything: what the host wraps is marked, and what it proxies
// has headers that say for whom. What it forwards is just as the caller sent it,
// any Host included, so that [Server.addTriggers] sees to it that nothing forwarded
// can have the path of a function.
func (s *Server) isFromHost(r *http.Request) bool {
	return s.cfg.BehindHost && r.Host == s.cfg.Address && r.Context().Value(callersKey{}) == nil &&
		r.Header.Get("X-Forwarded-Host") == "" && r.Header.Get("X-Forwarded-For") == "" && r.Header.Get("X-Original-Host") == ""
}
