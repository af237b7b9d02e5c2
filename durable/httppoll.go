package durable

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// httpCall is one call of [CallHTTP]. It makes the decisions of the extension's
// DurableOrchestrationContext.cs, CallHttpAsync, in the same order: an activity, then a
// timer and another activity as long as the response requires polling.
type httpCall struct {
	ctx      *Context
	request  HTTPRequest // as given by the caller
	retry    *RetryPolicy
	opts     []ActivityOption
	at       *url.URL         // URL of the last request
	deadline *Task[time.Time] // nil without a TotalTimeout
}

// send schedules the activity that sends r.
func (c *httpCall) send(r HTTPRequest) *Task[HTTPResponse] {
	return callActivity[HTTPResponse](c.ctx, string(HTTPActivityName), newHTTPRequestJSON(r, c.retry), c.opts)
}

// follow waits for the response to the first request and polls until it is final.
//
// A first response of 202 without a Location is final. A later 202 without a Location
// refers to the same URL as before; the extension fails in that case.
func (c *httpCall) follow(task *Task[HTTPResponse]) (HTTPResponse, error) {
	for asked := false; ; asked = true {
		if err := c.await(task); err != nil {
			return HTTPResponse{}, err
		}
		resp, err := task.Await()
		if err != nil || resp.StatusCode != http.StatusAccepted || c.request.NoPolling {
			return resp, err
		}
		location := headerValue(resp.Header, "Location")
		if location == "" && !asked {
			return resp, nil
		}
		next, at, err := c.request.poll(c.at, location, c.ctx.registry.worker.http.CrossOriginHeaders)
		if err != nil {
			return resp, err
		}
		c.at = at
		if err := c.await(c.ctx.Timer(c.pollDelay(resp))); err != nil {
			return HTTPResponse{}, err
		}
		task = c.send(next)
	}
}

// await waits for a task, but not beyond the deadline.
func (c *httpCall) await(t Awaitable) error {
	if c.deadline == nil {
		t.future().Await()
		return nil
	}
	if AwaitAny(c.ctx, t, c.deadline) == Awaitable(c.deadline) {
		return fmt.Errorf("HTTP request has no final response after %v: %w", c.request.TotalTimeout, ErrTimeout)
	}
	return nil
}

// pollDelay returns the wait before the next polling request.
func (c *httpCall) pollDelay(r HTTPResponse) time.Duration {
	if d, ok := retryAfter(headerValue(r.Header, "Retry-After"), c.ctx.Now()); ok {
		return d
	}
	if c.request.PollInterval > 0 {
		return c.request.PollInterval
	}
	return c.ctx.registry.worker.http.WithDefaults().PollInterval
}

// retryAfterMin and retryAfterMax limit what a server can request. A wait of 0 would
// fill the history with polls, and a very long wait would block the instance forever.
const (
	retryAfterMin = time.Second
	retryAfterMax = 365 * 24 * time.Hour
)

// retryAfter parses a Retry-After header, which is a number of seconds or a time. For
// any other value ok is false.
func retryAfter(s string, now time.Time) (wait time.Duration, ok bool) {
	s = strings.TrimSpace(s)
	if seconds, err := strconv.ParseUint(s, 10, 63); err == nil {
		if seconds > uint64(retryAfterMax/time.Second) {
			return retryAfterMax, true
		}
		return max(time.Duration(seconds)*time.Second, retryAfterMin), true
	}
	at, err := http.ParseTime(s)
	if err != nil {
		return 0, false
	}
	return min(max(at.Sub(now), retryAfterMin), retryAfterMax), true
}

// headerValue returns the first value of a header. The case of the name is ignored.
func headerValue(h http.Header, name string) string { return canonical(h).Get(name) }
