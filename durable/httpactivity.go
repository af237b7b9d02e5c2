package durable

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/httpcall"
)

// Defaults of [HTTPConfig].
const (
	// DefaultHTTPPollInterval is the extension's default (Options/HttpOptions.cs,
	// DefaultAsyncRequestSleepTimeMilliseconds).
	DefaultHTTPPollInterval = 30 * time.Second

	// DefaultHTTPContentLimit is in bytes.
	DefaultHTTPContentLimit = 10 << 20
)

// HTTPConfig configures the requests of [CallHTTP] in a [Worker]. The zero value is
// valid and has no token provider.
type HTTPConfig struct {
	// PollInterval is the wait before a polling request if neither the response nor the
	// request defines one. The maximum is a day. Zero means 30 seconds.
	PollInterval time.Duration

	// ContentLimit is the maximum size of a response body in bytes, up to 1 GiB. The
	// body is stored in the history. Zero means 10 MiB.
	ContentLimit int64

	// CrossOriginHeaders lists headers that [CallHTTP] may send to another origin than
	// the request's URL, if a response redirects or points there. Headers that contain
	// no credentials, such as Accept and User-Agent, are always sent.
	CrossOriginHeaders []string

	// Tokens gets the tokens for requests that have a TokenSource. If it is nil, such
	// requests fail.
	Tokens TokenProvider

	// Transport sends the requests. Nil means http.DefaultTransport.
	Transport http.RoundTripper
}

// WithDefaults returns a copy of c in which zero fields are set to their defaults.
func (c HTTPConfig) WithDefaults() HTTPConfig {
	if c.PollInterval == 0 {
		c.PollInterval = DefaultHTTPPollInterval
	}
	if c.ContentLimit == 0 {
		c.ContentLimit = DefaultHTTPContentLimit
	}
	if c.Transport == nil {
		c.Transport = http.DefaultTransport
	}
	return c
}

// httpContentMax limits ContentLimit. It is larger than a history can store.
const httpContentMax = 1 << 30

// validate returns an error that names the first field of c, after WithDefaults, that
// is out of range.
func (c HTTPConfig) validate() error {
	if c.PollInterval < 0 || c.PollInterval > 24*time.Hour {
		return fmt.Errorf("HTTP.PollInterval is %v, must be above 0 and at most %v", c.PollInterval, 24*time.Hour)
	}
	if c.ContentLimit < 0 || c.ContentLimit > httpContentMax {
		return fmt.Errorf("HTTP.ContentLimit is %d, must be above 0 and at most %d", c.ContentLimit, httpContentMax)
	}
	return nil
}

// reservedPrefix is the prefix of the names of built-in functions, as in the extension
// (OutOfProcMiddleware.cs, CallActivityAsync).
const reservedPrefix = "BuiltIn::"

// checkReserved panics if the name of f is reserved.
func checkReserved(f *Registration) {
	if len(f.name) >= len(reservedPrefix) && strings.EqualFold(f.name[:len(reservedPrefix)], reservedPrefix) {
		panic(fmt.Sprintf("durable: %s %q, of %s, cannot have that name: names that start with %s are reserved",
			f.kind, f.name, f.symbol, reservedPrefix))
	}
}

// send sends one request (Listener/TaskHttpActivityShim.cs, RunAsync).
func (c HTTPConfig) send(ctx context.Context, in httpRequestJSON) (resp HTTPResponse, err error) {
	r, err := in.request()
	if err != nil {
		return resp, NonRetryable(fmt.Errorf("read HTTP request: %w", err))
	}
	if r.TokenSource != nil {
		r.Header, err = c.authorize(ctx, r)
		if err != nil {
			return resp, err
		}
	}
	client := httpcall.Client{Transport: c.Transport, ContentLimit: c.ContentLimit, CrossOriginHeaders: c.CrossOriginHeaders}
	got, err := client.Do(ctx, httpcall.Request{Method: r.Method, URL: r.URL, Header: r.Header, Content: r.Content, Timeout: r.Timeout})
	if err != nil {
		return resp, sendError(err)
	}
	if in.Retry.isFailure(got.StatusCode) {
		return resp, &HTTPError{StatusCode: got.StatusCode, message: fmt.Sprintf("%s: response status is %d %s, which counts as a failure",
			got.Request, got.StatusCode, http.StatusText(got.StatusCode))}
	}
	resp = HTTPResponse{StatusCode: got.StatusCode, Header: got.Header, Content: string(got.Body)}
	if text, exact := httpcall.Text(got.Body, got.Header.Get("Content-Type")); exact {
		resp.Content = text
	}
	return resp, nil
}

// authorize returns r's headers with a token from its token source.
func (c HTTPConfig) authorize(ctx context.Context, r HTTPRequest) (http.Header, error) {
	m := *r.TokenSource
	m.Resource = m.scope()
	if c.Tokens == nil {
		return nil, NonRetryable(fmt.Errorf("an HTTP request needs a token for %s, but the worker has no TokenProvider: set Config.HTTP.Tokens", m.Resource))
	}
	token, err := c.Tokens.Token(ctx, m)
	if err != nil {
		return nil, fmt.Errorf("get token for %s: %w", m.Resource, err)
	}
	h := r.Header.Clone()
	if h == nil {
		h = make(http.Header, 1)
	}
	h.Set("Authorization", "Bearer "+token)
	return h, nil
}

// sendError returns the activity's error for a request without a response. If the
// request failed because the worker stops, the error is not used: another worker runs
// the activity again.
func sendError(err error) error {
	var late *httpcall.TimeoutError
	var refused *httpcall.RequestError
	var content *httpcall.ContentError
	switch {
	case errors.As(err, &late):
		return &httpTimeout{late.Error()}
	case errors.As(err, &refused), errors.As(err, &content):
		return NonRetryable(err)
	default:
		return &HTTPError{message: err.Error()}
	}
}

// HTTPError means that an HTTP request got no response, a response with a status in
// [HTTPRequest.RetryStatus], or a 202 (Accepted) whose Location is not an HTTP URL. In
// the last case [CallHTTP] returns it directly. In the other cases it is in the chain of
// the *[TaskFailedError] that CallHTTP returns, and of the error that the policy's
// Handle function gets. This also applies to requests that a .NET worker sent.
type HTTPError struct {
	// StatusCode is the status code of the response. It is 0 if there was no response,
	// or the status is not known.
	StatusCode int `json:"statusCode"`

	message string
}

// Error describes the request and the reason of its failure.
func (e *HTTPError) Error() string { return e.message }

// httpTimeout is the activity's error if a request timed out. The orchestrator gets
// ErrTimeout.
type httpTimeout struct{ message string }

func (e *httpTimeout) Error() string { return e.message }

// httpErrors are the errors of HTTP requests. They have the names of the exceptions
// that the extension's activity throws.
var httpErrors = []*namedError{
	{
		name: "System.Net.Http.HttpRequestException",
		matches: func(err error) bool {
			_, ok := err.(*HTTPError) //nolint:errorlint // the chain is walked elsewhere
			return ok
		},
		recover: func(f *history.FailureDetails) (error, bool) {
			e := &HTTPError{message: f.ErrorMessage}
			_, err := fmt.Sscan(f.Properties["statusCode"], &e.StatusCode)
			if err != nil {
				e.StatusCode = 0 // .NET does not report the status
			}
			return e, true
		},
		properties: true,
	},
	{
		name: "System.TimeoutException",
		matches: func(err error) bool {
			_, ok := err.(*httpTimeout) //nolint:errorlint // the chain is walked elsewhere
			return ok
		},
		recover: func(*history.FailureDetails) (error, bool) { return ErrTimeout, true },
	},
}
