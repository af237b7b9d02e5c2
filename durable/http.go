package durable

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/httpcall"
)

// HTTPRequest is a request of [CallHTTP]. Its JSON has the format of the extension's
// DurableHttpRequest.
type HTTPRequest struct {
	// Method is the HTTP method, such as POST. Empty means GET.
	Method string

	// URL is an absolute URL that starts with http:// or https://.
	URL string

	// Header contains the headers. They are stored in the history; use a TokenSource
	// instead of secrets.
	Header http.Header

	// Content is the body in UTF-8; empty means none. The default Content-Type is
	// text/plain.
	Content string

	// TokenSource, if not nil, adds an Authorization header with a token of the app's
	// identity.
	TokenSource *ManagedIdentity

	// Timeout limits each HTTP request, including polling requests. The maximum is 240
	// seconds. Zero means the maximum.
	Timeout time.Duration

	// TotalTimeout limits the whole call, including waits. Zero means no limit.
	// Otherwise the call creates a durable timer.
	TotalTimeout time.Duration

	// NoPolling returns a response with status 202 (Accepted) like any other response.
	NoPolling bool

	// PollInterval is the wait before a polling request if the response has no
	// Retry-After. Zero means [HTTPConfig.PollInterval].
	PollInterval time.Duration

	// RetryStatus lists status codes that a [RetryPolicy] treats as failures, such as
	// 429, 502, 503 and 504. It must be empty without a policy.
	RetryStatus []int
}

// HTTPResponse is the response of [CallHTTP]. Its JSON has the format of the
// extension's DurableHttpResponse.
type HTTPResponse struct {
	// StatusCode is the status code, such as 200.
	StatusCode int

	// Header contains the headers, each with all its values.
	Header http.Header

	// Content is the body. Text in UTF-8, UTF-16 or Latin-1, according to its
	// Content-Type or byte order mark, is converted to UTF-8. Other content is
	// unchanged. (A .NET worker returns only text, with U+FFFD for invalid bytes.)
	Content string
}

// HTTPActivityName is the name of the activity that sends the requests of [CallHTTP].
// It is the extension's name (Options/HttpOptions.cs, HttpTaskActivityReservedName).
// Every registry contains the activity, and the prefix of its name is reserved. A
// direct call of the activity sends one request and does not poll.
const HTTPActivityName ActivityName[HTTPRequest, HTTPResponse] = "BuiltIn::HttpActivity"

// CallHTTP sends an HTTP request in an activity and returns the response, whatever its
// status:
//
//	resp, err := durable.CallHTTP(ctx, durable.HTTPRequest{
//		Method:      "POST",
//		URL:         "https://management.azure.com/…/restart?api-version=2024-07-01",
//		TokenSource: &durable.ManagedIdentity{Resource: "https://management.azure.com"},
//	}).Await()
//
// If the response is 202 (Accepted) with a Location header, CallHTTP polls that URL
// with GET until the status changes. Between requests a durable timer waits and
// occupies no worker. Its duration is the value of the Retry-After header, at least a
// second and at most 365 days. Without the header it is [HTTPRequest.PollInterval].
// Each poll adds events to the history; see [HTTPRequest.TotalTimeout]. Polling
// requests have the headers and the token of the first request, except X-Functions-Key
// and headers of the content. Credentials are never sent to another origin than the
// URL's.
//
// The options apply to each request. A [RetryPolicy] retries requests that get no
// response, or a response with a status in [HTTPRequest.RetryStatus]. Even without a
// policy a request may be sent twice, because an activity can run twice.
//
// The error of a failed request is a *[TaskFailedError]. It wraps [ErrTimeout] if the
// request timed out. It wraps an *[HTTPError] if there was no response, or if the policy
// gave up on the response's status. A response that exceeds [HTTPConfig.ContentLimit] is
// an error too. When TotalTimeout has passed, the error wraps [ErrTimeout]. If a Location
// is not an HTTP URL, the error is an *[HTTPError].
//
// If the request is invalid, nothing is sent and the returned task has already
// completed with the error.
func CallHTTP(ctx *Context, req HTTPRequest, opts ...ActivityOption) *Task[HTTPResponse] {
	var o activityOptions
	for _, opt := range opts {
		opt.applyActivity(&o)
	}
	c := &httpCall{ctx: ctx, request: req, retry: o.retry, opts: opts}
	at, err := req.check(o.retry)
	if err != nil {
		return completedTask[HTTPResponse](ctx, fmt.Errorf("call HTTP: %w", err))
	}
	c.at = at
	c.request.Header = canonical(req.Header)
	first := c.send(c.request)
	if req.NoPolling && req.TotalTimeout == 0 {
		return first
	}
	if req.TotalTimeout > 0 {
		c.deadline = ctx.Timer(req.TotalTimeout)
	}
	return Go(ctx, func() (HTTPResponse, error) { return c.follow(first) })
}

// check validates r and returns its URL.
func (r HTTPRequest) check(retry *RetryPolicy) (*url.URL, error) {
	at, err := url.Parse(r.URL)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Hostname() == "" {
		return nil, errors.New("HTTPRequest.URL is not an absolute URL that starts with http:// or https://")
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"Timeout", r.Timeout}, {"TotalTimeout", r.TotalTimeout}, {"PollInterval", r.PollInterval}} {
		if d.value < 0 {
			return nil, fmt.Errorf("HTTPRequest.%s is %v; want at least 0", d.field, d.value)
		}
	}
	switch {
	case r.Timeout > httpcall.TimeoutMax:
		return nil, fmt.Errorf("HTTPRequest.Timeout is %v; want at most %v", r.Timeout, httpcall.TimeoutMax)
	case !utf8.ValidString(r.Content):
		return nil, errors.New("HTTPRequest.Content is not valid UTF-8; send binary data in your own activity")
	case len(r.RetryStatus) > 0 && retry == nil:
		return nil, errors.New("HTTPRequest.RetryStatus requires a RetryPolicy option")
	case r.TokenSource != nil && r.TokenSource.Resource == "":
		return nil, errors.New("ManagedIdentity.Resource is empty")
	}
	return at, nil
}

// canonical returns a copy of h with canonical header names. It merges names that
// differ only in case.
func canonical(h http.Header) http.Header {
	c := make(http.Header, len(h))
	for _, name := range sortedKeys(h) {
		c[http.CanonicalHeaderKey(name)] = append(c[http.CanonicalHeaderKey(name)], h[name]...)
	}
	return c
}

// MarshalJSON returns the request in the format of the extension's DurableHttpRequest.
// It omits TotalTimeout, PollInterval and RetryStatus, which only the orchestrator
// uses.
func (r HTTPRequest) MarshalJSON() ([]byte, error) { return marshalJSON(newHTTPRequestJSON(r, nil)) }

// UnmarshalJSON parses the format of MarshalJSON.
func (r *HTTPRequest) UnmarshalJSON(text []byte) error {
	var j httpRequestJSON
	if err := json.Unmarshal(text, &j); err != nil {
		return err
	}
	read, err := j.request()
	if err != nil {
		return err
	}
	*r = read
	return nil
}

// MarshalJSON returns the response in the format of the extension's
// DurableHttpResponse.
func (r HTTPResponse) MarshalJSON() ([]byte, error) {
	text, exact := httpcall.Text([]byte(r.Content), "")
	j := httpResponseJSON{StatusCode: r.StatusCode, Headers: headerJSON(r.Header), Content: &text}
	if !exact || text != r.Content {
		j.Bytes = new(base64.StdEncoding.EncodeToString([]byte(r.Content)))
	}
	return marshalJSON(j)
}

// UnmarshalJSON parses the formats of MarshalJSON and .NET.
func (r *HTTPResponse) UnmarshalJSON(text []byte) error {
	var j httpResponseJSON
	if err := json.Unmarshal(text, &j); err != nil {
		return err
	}
	*r = HTTPResponse{StatusCode: j.StatusCode, Header: http.Header(j.Headers), Content: valueOr(j.Content)}
	if j.Bytes != nil {
		b, err := base64.StdEncoding.DecodeString(*j.Bytes)
		if err != nil {
			return fmt.Errorf("contentBytes: %w", err)
		}
		r.Content = string(b)
	}
	return nil
}

// poll returns the polling request that follows a request to the URL last. The location
// is relative to last; an empty location means last itself.
//
// It follows the extension's CreateLocationPollRequest, with the rule of its later
// versions that credentials are only for the origin of the first request. The server
// chose the polling URL and must not receive credentials of another origin. The
// extension removes Authorization and Cookie. Here only headers that contain no
// credentials are kept, and those in crossOrigin.
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
				"%s: the Location of the 202 response is not an HTTP URL", httpcall.Name(r.method(), last),
			)}
		}
	}
	r.Method, r.Content, r.URL = http.MethodGet, "", at.String()
	r.Header = canonical(r.Header)
	r.Header.Del(httpcall.FunctionsKey) // the key is for one function; the status URL is another
	for name := range r.Header {
		if strings.HasPrefix(name, "Content-") {
			delete(r.Header, name) // a GET has no content
		}
	}
	if !httpcall.SameOrigin(origin, at) {
		httpcall.KeepSafe(r.Header, crossOrigin)
		r.TokenSource = nil
		delete(r.Header, "Host")
	}
	return r, at, nil
}

// method returns the HTTP method of r.
func (r HTTPRequest) method() string {
	if r.Method == "" {
		return http.MethodGet
	}
	return r.Method
}

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
		next, at, err := c.request.poll(c.at, location, c.ctx.registry.worker.HTTP.CrossOriginHeaders)
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
	return c.ctx.registry.worker.HTTP.WithDefaults().PollInterval
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

// ManagedIdentity selects the resource for which an [HTTPRequest] needs a token of the
// app's identity. The activity that sends the request acquires the token, so the token
// is not stored in the history.
type ManagedIdentity struct {
	// Resource is the resource that the token is for, such as
	// https://management.azure.com, with or without /.default.
	Resource string

	// AuthorityHost is the authority that issues the token. Empty means the authority of
	// Azure's public cloud.
	AuthorityHost string

	// TenantID is the tenant of the identity. Empty means the default tenant.
	TenantID string
}

// TokenProvider acquires tokens for the requests of [CallHTTP]. It must be safe for
// concurrent use and should cache tokens while they are valid. The handler has an
// implementation for Azure.
type TokenProvider interface {
	// Token returns an access token for m.Resource, which is a scope that ends in
	// /.default.
	Token(ctx context.Context, m ManagedIdentity) (string, error)
}

// scope returns the resource as a scope. .NET does this only for two resources that it
// knows (ManagedIdentityTokenSource.cs, ManagedIdentityTokenSource). Here it is done
// for all, because a managed identity has no other scopes.
func (m ManagedIdentity) scope() string {
	const suffix = "/.default"
	if strings.HasSuffix(m.Resource, suffix) {
		return m.Resource
	}
	return strings.TrimSuffix(m.Resource, "/") + suffix
}
