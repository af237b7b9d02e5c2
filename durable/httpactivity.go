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
	// DefaultHTTPPollInterval is the extension's
	// (Options/HttpOptions.cs, DefaultAsyncRequestSleepTimeMilliseconds).
	DefaultHTTPPollInterval = 30 * time.Second

	// DefaultHTTPContentLimit is in bytes.
	DefaultHTTPContentLimit = 10 << 20
)

// HTTPConfig says how a [Worker] makes the requests of [CallHTTP]. The zero
// value works, without token sources.
type HTTPConfig struct {
	// PollInterval is how long to wait before asking again when neither the
	// response nor the request says, at most a day. Zero means 30 s.
	PollInterval time.Duration

	// ContentLimit is how many bytes the body of a response may have, at most
	// 1 GiB. It goes into the history. Zero means 10 MiB.
	ContentLimit int64

	// CrossOriginHeaders are names of headers that [CallHTTP] may send to another
	// origin than that of the request's URL, when a response says to go there,
	// besides such as Accept and User-Agent, which hold no key.
	CrossOriginHeaders []string

	// Tokens gets tokens for requests that have a TokenSource. Nil means that
	// they fail.
	Tokens TokenProvider

	// Transport sends the requests. Nil means http.DefaultTransport.
	Transport http.RoundTripper
}

// WithDefaults returns a copy of c in which fields that are zero have their
// defaults.
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

// httpContentMax is more than a history can take.
const httpContentMax = 1 << 30

// validate names the first field of c, after WithDefaults, whose value is out of
// its range.
func (c HTTPConfig) validate() error {
	if c.PollInterval < 0 || c.PollInterval > 24*time.Hour {
		return fmt.Errorf("HTTP.PollInterval is %v, must be above 0 and at most %v", c.PollInterval, 24*time.Hour)
	}
	if c.ContentLimit < 0 || c.ContentLimit > httpContentMax {
		return fmt.Errorf("HTTP.ContentLimit is %d, must be above 0 and at most %d", c.ContentLimit, httpContentMax)
	}
	return nil
}

// reservedPrefix begins the names of what is built in, as in the extension
// (OutOfProcMiddleware.cs, CallActivityAsync).
const reservedPrefix = "BuiltIn::"

// checkReserved panics if the name of f, which is to be registered, is reserved.
func checkReserved(f *Function) {
	if len(f.name) >= len(reservedPrefix) && strings.EqualFold(f.name[:len(reservedPrefix)], reservedPrefix) {
		panic(fmt.Sprintf("durable: %s %q, of %s, cannot have that name: those that begin with %s are reserved for what is built in",
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
	if in.Retry.counts(got.StatusCode) {
		return resp, &HTTPError{StatusCode: got.StatusCode, message: fmt.Sprintf("%s: response status is %d %s, which is to be tried again",
			got.Request, got.StatusCode, http.StatusText(got.StatusCode))}
	}
	resp = HTTPResponse{StatusCode: got.StatusCode, Header: got.Header, Content: string(got.Body)}
	if text, exact := httpcall.Text(got.Body, got.Header.Get("Content-Type")); exact {
		resp.Content = text
	}
	return resp, nil
}

// authorize returns r's headers with a token for its source.
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

// sendError returns what the activity fails with when a request got no response.
// If that is because the worker stops, it does not matter: another runs the
// activity again.
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

// An HTTPError says that an HTTP request got no response, or one with a status
// that a [RetryPolicy] is to try again. It is in the chain of the
// *[TaskFailedError] of [CallHTTP], also if a .NET worker sent the request, and
// of that which the policy's Handle gets.
type HTTPError struct {
	// StatusCode is the response's; 0 if there was none, or it is not known.
	StatusCode int `json:"statusCode"`

	message string
}

func (e *HTTPError) Error() string { return e.message }

// httpTimeout is what the activity returns when a request took too long. The
// orchestrator gets ErrTimeout.
type httpTimeout struct{ message string }

func (e *httpTimeout) Error() string { return e.message }

// httpErrors are the errors of requests, under the names of those that the
// extension's activity throws.
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
				e.StatusCode = 0 // .NET does not tell it
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
