package durable

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/httpcall"
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

// poll returns the request that asks again, after one to the URL last. A
// location is relative to that, and empty if it is the same.
//
// It is as the extension's CreateLocationPollRequest, with the rule of its later
// versions that credentials are for the origin of the first request only: where
// to ask is up to whoever answered, and must not get what is not theirs. They
// take out Authorization and Cookie; here only headers that hold no key stay, and
// those of crossOrigin.
func (r HTTPRequest) poll(last *url.URL, location string, crossOrigin []string) (HTTPRequest, *url.URL, error) {
	origin, err := url.Parse(r.URL)
	if err != nil {
		return r, nil, fmt.Errorf("read URL of HTTP request: %w", err)
	}
	at := last
	if location != "" {
		at, err = last.Parse(location)
		if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Hostname() == "" {
			return r, nil, &HTTPError{StatusCode: http.StatusAccepted, message: fmt.Sprintf(
				"%s: the response says to ask again at a Location that is no HTTP URL", httpcall.Name(r.method(), last))}
		}
	}
	r.Method, r.Content, r.URL = http.MethodGet, "", at.String()
	r.Header = canonical(r.Header)
	r.Header.Del(httpcall.FunctionsKey) // it is for one function, and the status is another
	for name := range r.Header {
		if strings.HasPrefix(name, "Content-") {
			delete(r.Header, name) // there is no content
		}
	}
	if !httpcall.SameOrigin(origin, at) {
		httpcall.KeepSafe(r.Header, crossOrigin)
		r.TokenSource = nil
		delete(r.Header, "Host")
	}
	return r, at, nil
}

// method returns the verb of r.
func (r HTTPRequest) method() string {
	if r.Method == "" {
		return http.MethodGet
	}
	return r.Method
}

// headerValue returns the first value of a header, however its name is spelled.
func headerValue(h http.Header, name string) string { return canonical(h).Get(name) }
