package durable

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/httpcall"
)

// An HTTPRequest is what [CallHTTP] sends. As JSON it has the form of the
// extension's DurableHttpRequest.
type HTTPRequest struct {
	// Method is the verb, such as POST. Empty means GET.
	Method string

	// URL is absolute, and begins with http:// or https://.
	URL string

	// Header has the request's headers. It is stored with the rest: secrets are
	// better got by a TokenSource.
	Header http.Header

	// Content is the body, in UTF-8; empty for none. Without a Content-Type among
	// the headers it is text/plain.
	Content string

	// TokenSource, if not nil, gives the request the Authorization header of the
	// app's own identity.
	TokenSource *ManagedIdentity

	// Timeout is how long each request may take, those that ask again included;
	// at most 240 s. Zero means that.
	Timeout time.Duration

	// TotalTimeout is how long all of it may take, waits included. Zero means any
	// time. It creates a timer.
	TotalTimeout time.Duration

	// NoPolling makes a response with status 202 (Accepted) the result, as any
	// other response is.
	NoPolling bool

	// PollInterval is how long to wait before asking again when the response does
	// not say. Zero means what the worker is configured with, [HTTPConfig].
	PollInterval time.Duration

	// RetryStatus are the status codes that a [RetryPolicy] counts as failures,
	// such as 429, 502, 503 and 504. Without a policy there must be none.
	RetryStatus []int
}

// An HTTPResponse is what came back. As JSON it has the form of the extension's
// DurableHttpResponse.
type HTTPResponse struct {
	// StatusCode is such as 200.
	StatusCode int

	// Header has the response's headers, each with all its values.
	Header http.Header

	// Content is the body: as text in UTF-8 if it is text in UTF-8, UTF-16 or
	// Latin-1 by its Content-Type or byte order mark, and otherwise byte for
	// byte. (A .NET worker returns text only, with U+FFFD for all other bytes.)
	Content string
}

// HTTPActivityName is the name of the activity by which [CallHTTP] sends each
// request, the extension's (Options/HttpOptions.cs, HttpTaskActivityReservedName).
// Every registry has it, and no function may be registered with a name that
// begins like it. Calling it by name sends one request and does not ask again.
const HTTPActivityName ActivityName[HTTPRequest, HTTPResponse] = "BuiltIn::HttpActivity"

// CallHTTP sends an HTTP request, in an activity, and returns the response,
// whichever its status:
//
//	resp, err := durable.CallHTTP(ctx, durable.HTTPRequest{
//		Method:      "POST",
//		URL:         "https://management.azure.com/…/restart?api-version=2024-07-01",
//		TokenSource: &durable.ManagedIdentity{Resource: "https://management.azure.com"},
//	}).Await()
//
// While the response is 202 (Accepted) with a Location, it asks again there with
// GET, after a durable timer for as long as Retry-After says. No worker waits in
// between. Each time takes room in the history; see [HTTPRequest.TotalTimeout].
// The same headers and token are sent to ask again, but never an
// X-Functions-Key, and no credentials to another origin than the URL's.
//
// The options apply to each request. With a [RetryPolicy] one is sent again that
// got no response, or one with a status of [HTTPRequest.RetryStatus]. Even
// without, a request can be sent twice, as an activity can run twice.
//
// The error is a *[TaskFailedError]. It wraps [ErrTimeout] if a request took too
// long, as does the error when the TotalTimeout has passed, and an *[HTTPError]
// if there was no response, or one that no policy tries again any more. A
// response that is larger than [HTTPConfig] allows is an error too.
//
// If something of the request cannot be, nothing is sent and the task is
// complete with the error.
func CallHTTP(ctx *Context, req HTTPRequest, opts ...ActivityOption) *Task[HTTPResponse] {
	var o activityOptions
	for _, opt := range opts {
		opt.applyActivity(&o)
	}
	c := &httpCall{ctx: ctx, request: req, retry: o.retry, opts: opts}
	at, err := req.check(o.retry)
	if err != nil {
		return endedTask[HTTPResponse](ctx, fmt.Errorf("call HTTP: %w", err))
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

// check says what of r cannot be, and returns its URL.
func (r HTTPRequest) check(retry *RetryPolicy) (*url.URL, error) {
	at, err := url.Parse(r.URL)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Hostname() == "" {
		return nil, errors.New("HTTPRequest.URL is no absolute URL that begins with http:// or https://")
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"Timeout", r.Timeout}, {"TotalTimeout", r.TotalTimeout}, {"PollInterval", r.PollInterval}} {
		if d.value < 0 {
			return nil, fmt.Errorf("HTTPRequest.%s is %v, must not be below 0", d.field, d.value)
		}
	}
	switch {
	case r.Timeout > httpcall.TimeoutMax:
		return nil, fmt.Errorf("HTTPRequest.Timeout is %v, must be at most %v", r.Timeout, httpcall.TimeoutMax)
	case !utf8.ValidString(r.Content):
		return nil, errors.New("HTTPRequest.Content is no UTF-8; send other bytes in an activity of your own")
	case len(r.RetryStatus) > 0 && retry == nil:
		return nil, errors.New("HTTPRequest.RetryStatus is of no use without a RetryPolicy among the options")
	case r.TokenSource != nil && r.TokenSource.Resource == "":
		return nil, errors.New("ManagedIdentity.Resource is empty")
	}
	return at, nil
}

// canonical returns a copy of h in which names that differ in nothing but case
// are one.
func canonical(h http.Header) http.Header {
	c := make(http.Header, len(h))
	for _, name := range sortedKeys(h) {
		c[http.CanonicalHeaderKey(name)] = append(c[http.CanonicalHeaderKey(name)], h[name]...)
	}
	return c
}

// MarshalJSON returns the request in the form of the extension's
// DurableHttpRequest. TotalTimeout, PollInterval and RetryStatus are the
// orchestrator's, and not part of it.
func (r HTTPRequest) MarshalJSON() ([]byte, error) { return marshalJSON(newHTTPRequestJSON(r, nil)) }

// UnmarshalJSON reads the form of MarshalJSON.
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

// MarshalJSON returns the response in the form of the extension's
// DurableHttpResponse.
func (r HTTPResponse) MarshalJSON() ([]byte, error) {
	text, exact := httpcall.Text([]byte(r.Content), "")
	j := httpResponseJSON{StatusCode: r.StatusCode, Headers: headerJSON(r.Header), Content: &text}
	if !exact || text != r.Content {
		j.Bytes = new(base64.StdEncoding.EncodeToString([]byte(r.Content)))
	}
	return marshalJSON(j)
}

// UnmarshalJSON reads the form of MarshalJSON, and .NET's.
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

// poll returns the request that asks again, after one to the URL last. A
// location is relative to that, and empty if it is the same.
//
// It is as the extension's CreateLocationPollRequest, with the rule of its later
// versions that credentials are for the origin of the first request only: the
// server that answered chose where to poll, and must not get another origin's. They
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
				"%s: the response says to ask again at a Location that is no HTTP URL", httpcall.Name(r.method(), last),
			)}
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
