package durable

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// An httpCall is one call of [CallHTTP]. It decides the same as the extension's
// DurableOrchestrationContext.cs, CallHttpAsync, in the same order: an activity,
// and as long as its response says so a timer and another activity.
type httpCall struct {
	ctx      *Context
	request  HTTPRequest // as the caller gave it
	retry    *RetryPolicy
	opts     []ActivityOption
	at       *url.URL         // of the last request
	deadline *Task[time.Time] // nil if there is none
}

// send schedules the activity that sends r.
func (c *httpCall) send(r HTTPRequest) *Task[HTTPResponse] {
	return callActivity[HTTPResponse](c.ctx, string(HTTPActivityName), newHTTPRequestJSON(r, c.retry), c.opts)
}

// follow waits for the response to the first request, and asks again until it
// is final.
//
// A 202 that says nowhere where to ask again is final. Later ones mean the same
// place as before; the extension fails then.
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
		if err := c.await(c.ctx.Timer(c.untilPoll(resp))); err != nil {
			return HTTPResponse{}, err
		}
		task = c.send(next)
	}
}

// await waits for a task, but not longer than until the deadline.
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

// untilPoll returns how long to wait before asking again.
func (c *httpCall) untilPoll(r HTTPResponse) time.Duration {
	if d, ok := retryAfter(headerValue(r.Header, "Retry-After"), c.ctx.Now()); ok {
		return d
	}
	if c.request.PollInterval > 0 {
		return c.request.PollInterval
	}
	return c.ctx.registry.worker.http.WithDefaults().PollInterval
}

// retryAfterMin and retryAfterMax bound what a server can ask for: a 0 would ask
// again at once, and fill the history, and centuries park an instance for good.
const (
	retryAfterMin = time.Second
	retryAfterMax = 365 * 24 * time.Hour
)

// retryAfter reads a Retry-After header: a number of seconds, or a time. What
// is neither does not count.
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

// headerValue returns the first value of a header, however its name is spelled.
func headerValue(h http.Header, name string) string { return canonical(h).Get(name) }
