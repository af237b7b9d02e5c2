package durable

import (
	"bytes"
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
)

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
	var b bytes.Buffer
	err := appendJSON(&b, v)
	return b.Bytes(), err
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
