package durable

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
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

	// CrossOriginHeaders lists headers that [CallHTTP] may send to another origin after a
	// redirect, or when it polls a URL there. Headers that contain no credentials, such
	// as Accept and User-Agent, are always sent.
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
		return fmt.Errorf("HTTP.PollInterval is %v; want more than 0 and at most %v", c.PollInterval, 24*time.Hour)
	}
	if c.ContentLimit < 0 || c.ContentLimit > httpContentMax {
		return fmt.Errorf("HTTP.ContentLimit is %d; want more than 0 and at most %d", c.ContentLimit, httpContentMax)
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

// httpRequestJSON is a request on the wire
// (WebJobs.Extensions.DurableTask/DurableHttpRequest.cs).
type httpRequestJSON struct {
	Method      *string         `json:"method"` // nil means GET
	URI         string          `json:"uri"`
	Headers     headerJSON      `json:"headers"`
	Content     *string         `json:"content"`
	TokenSource *tokenJSON      `json:"tokenSource"`
	Polling     *bool           `json:"asynchronousPatternEnabled"` // nil means true
	Retry       *retryJSON      `json:"retryOptions"`
	Timeout     *timeSpanString `json:"timeout"`
}

// retryJSON contains the retry options of a request (HttpRetryOptions.cs). The
// orchestrator does the retries; the activity only needs the status codes that count as
// failures.
type retryJSON struct {
	FirstRetryInterval  timeSpanString
	MaxRetryInterval    timeSpanString
	BackoffCoefficient  float64
	RetryTimeout        timeSpanString
	MaxNumberOfAttempts int
	StatusCodesToRetry  []int
}

// tokenJSON is a token source. The only supported Kind is AzureManagedIdentity. Token
// sources of other .NET types have $type instead.
type tokenJSON struct {
	Kind     string            `json:"kind"`
	Type     string            `json:"$type,omitempty"`
	Resource string            `json:"resource"`
	Options  *tokenOptionsJSON `json:"options,omitempty"`
}

// tokenOptionsJSON is .NET's ManagedIdentityOptions.cs.
type tokenOptionsJSON struct {
	AuthorityHost *string `json:"authorityhost"`
	TenantID      *string `json:"tenantid"`
}

const managedIdentityKind = "AzureManagedIdentity"

// newHTTPRequestJSON returns the activity's input for r. It includes retry options only
// if there are status codes to retry: without codes, .NET retries all codes except 2xx.
func newHTTPRequestJSON(r HTTPRequest, retry *RetryPolicy) httpRequestJSON {
	j := httpRequestJSON{
		Method:  new(r.method()),
		URI:     r.URL,
		Headers: headerJSON(r.Header),
		Polling: new(!r.NoPolling),
	}
	if r.Content != "" {
		j.Content = new(r.Content)
	}
	if r.Timeout > 0 {
		j.Timeout = new(formatTimeSpan(r.Timeout))
	}
	if t := r.TokenSource; t != nil {
		j.TokenSource = &tokenJSON{Kind: managedIdentityKind, Resource: t.scope()}
		if t.AuthorityHost != "" || t.TenantID != "" {
			j.TokenSource.Options = &tokenOptionsJSON{AuthorityHost: optional(t.AuthorityHost), TenantID: optional(t.TenantID)}
		}
	}
	if retry != nil && len(r.RetryStatus) > 0 {
		p := retry.withDefaults()
		j.Retry = &retryJSON{
			FirstRetryInterval:  formatTimeSpan(p.FirstInterval),
			MaxRetryInterval:    formatTimeSpan(p.MaxInterval),
			BackoffCoefficient:  p.Coefficient,
			RetryTimeout:        timeSpanMax,
			MaxNumberOfAttempts: p.MaxAttempts,
			StatusCodesToRetry:  r.RetryStatus,
		}
		if p.RetryTimeout > 0 {
			j.Retry.RetryTimeout = formatTimeSpan(p.RetryTimeout)
		}
	}
	return j
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// request converts j to an HTTPRequest.
func (j httpRequestJSON) request() (HTTPRequest, error) {
	r := HTTPRequest{URL: j.URI, Header: http.Header(j.Headers), Content: valueOr(j.Content), Method: valueOr(j.Method)}
	r.Method = r.method()
	r.NoPolling = j.Polling != nil && !*j.Polling
	if j.Timeout != nil {
		d, err := j.Timeout.duration()
		if err != nil {
			return r, fmt.Errorf("timeout: %w", err)
		}
		r.Timeout = d
	}
	if j.Retry != nil {
		r.RetryStatus = j.Retry.StatusCodesToRetry
	}
	switch t := j.TokenSource; {
	case t == nil:
	case t.Kind == "" && t.Type != "":
		return r, fmt.Errorf("the token source is of type %s, which exists in .NET only", t.Type)
	case t.Kind != managedIdentityKind:
		return r, fmt.Errorf("the token source kind '%q' is not supported", t.Kind)
	default:
		r.TokenSource = &ManagedIdentity{Resource: t.Resource}
		if t.Options != nil {
			r.TokenSource.AuthorityHost = valueOr(t.Options.AuthorityHost)
			r.TokenSource.TenantID = valueOr(t.Options.TenantID)
		}
	}
	return r, nil
}

// httpResponseJSON is a response on the wire (DurableHttpResponse.cs). Bytes is an
// extension of this package that .NET ignores. It is set only if Content does not
// represent the body exactly.
type httpResponseJSON struct {
	StatusCode int        `json:"statusCode"`
	Headers    headerJSON `json:"headers"`
	Content    *string    `json:"content"`
	Bytes      *string    `json:"contentBytes,omitempty"` // base64
}

func marshalJSON(v any) ([]byte, error) {
	var b strings.Builder
	err := appendJSON(&b, v)
	return []byte(b.String()), err
}

// headerJSON is the wire format of headers: an object in which a header with one value
// is a string, and any other an array of strings (HttpHeadersConverter.cs).
type headerJSON http.Header

func (h headerJSON) MarshalJSON() ([]byte, error) {
	values := make(map[string]any, len(h)) // encoded in the order of its keys
	for name, v := range h {
		switch len(v) {
		case 0:
			values[name] = []string{}
		case 1:
			values[name] = v[0]
		default:
			values[name] = v
		}
	}
	return marshalJSON(values)
}

// UnmarshalJSON accepts the same values as .NET. Anything but an object means no
// headers, and a header that is neither a string nor an array has no values.
func (h *headerJSON) UnmarshalJSON(text []byte) error {
	*h = headerJSON{}
	if !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		return nil
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	read := make(http.Header, len(raw))
	for name, value := range raw {
		values := []string{}
		switch value[0] {
		case '"':
			values = append(values, "")
			if err := json.Unmarshal(value, &values[0]); err != nil {
				return fmt.Errorf("header %s: %w", name, err)
			}
		case '[':
			if err := json.Unmarshal(value, &values); err != nil {
				return fmt.Errorf("header %s: %w", name, err)
			}
		}
		read[name] = values
	}
	*h = headerJSON(canonical(read))
	return nil
}

func sortedKeys(h http.Header) []string { return slices.Sorted(maps.Keys(h)) }

// timeSpanString is a .NET TimeSpan, [d.]hh:mm:ss[.f], with up to seven digits f.
type timeSpanString string

// timeSpanMax is TimeSpan.MaxValue, which .NET uses for no timeout.
const timeSpanMax timeSpanString = "10675199.02:48:05.4775807"

var timeSpanForm = regexp.MustCompile(`^(?:(\d{1,8})\.)?(\d{1,2}):(\d{2}):(\d{2})(?:\.(\d{1,7}))?$`)

// duration converts s. It returns the longest time.Duration for a value that does not
// fit.
func (s timeSpanString) duration() (time.Duration, error) {
	m := timeSpanForm.FindStringSubmatch(strings.TrimSpace(string(s)))
	if m == nil {
		return 0, fmt.Errorf("%.40q is not a time span of the form hh:mm:ss or d.hh:mm:ss", string(s))
	}
	var parts [4]time.Duration // days, hours, minutes, seconds
	for i := range parts {
		n, _ := strconv.Atoi(m[i+1]) // digits, or empty, which results in 0
		parts[i] = time.Duration(n)
	}
	if parts[1] > 23 || parts[2] > 59 || parts[3] > 59 {
		return 0, errors.New("the hours, minutes and seconds of a time span must not exceed 23:59:59; give longer times in days")
	}
	if parts[0] > math.MaxInt64/(24*time.Hour)-1 {
		return math.MaxInt64, nil
	}
	ticks, _ := strconv.Atoi((m[5] + "0000000")[:7])
	return parts[0]*24*time.Hour + parts[1]*time.Hour + parts[2]*time.Minute + parts[3]*time.Second + time.Duration(ticks)*100, nil
}

// formatTimeSpan formats d in the format of .NET. d must not be negative.
func formatTimeSpan(d time.Duration) timeSpanString {
	days, rest := d/(24*time.Hour), d%(24*time.Hour)
	s := fmt.Sprintf("%02d:%02d:%02d", rest/time.Hour, rest%time.Hour/time.Minute, rest%time.Minute/time.Second)
	if days > 0 {
		s = fmt.Sprintf("%d.%s", days, s)
	}
	if ticks := rest % time.Second / 100; ticks > 0 {
		s += fmt.Sprintf(".%07d", ticks)
	}
	return timeSpanString(s)
}

// isFailure reports whether a status is a failure: it is one of the codes to retry or, if
// there are options without codes, it is not 2xx.
func (j *retryJSON) isFailure(status int) bool {
	switch {
	case j == nil:
		return false
	case len(j.StatusCodesToRetry) == 0:
		return status < 200 || status > 299
	default:
		return slices.Contains(j.StatusCodesToRetry, status)
	}
}
