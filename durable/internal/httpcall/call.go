// Package httpcall sends one HTTP request for the activity behind CallHTTP of an orchestrator.
// It limits the time and the size of a response, protects credentials in redirects, and decodes
// bodies as text.
package httpcall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// TimeoutMax is the maximum duration of a request, from its first byte to the last byte of the
// response (WebJobs.Extensions.DurableTask/DurableHttpClientFactory.cs, GetClient).
const TimeoutMax = 240 * time.Second

// userAgent is the User-Agent of requests that set none.
const userAgent = "durablefunctions-go"

// Request is an HTTP request.
type Request struct {
	Method  string // default GET
	URL     string // absolute
	Header  http.Header
	Content string        // the body; empty for none
	Timeout time.Duration // default and maximum TimeoutMax
}

// Response is the response to a request.
type Response struct {
	Request    string // the name of the request, see Name
	StatusCode int
	Header     http.Header
	Body       []byte
}

// Client sends requests.
type Client struct {
	Transport    http.RoundTripper
	ContentLimit int64 // maximum size of a response's body, in bytes

	// CrossOriginHeaders are additional headers that may be sent to other origins.
	CrossOriginHeaders []string
}

// Do sends r, follows redirects and reads the response. It returns a *[RequestError] if r is
// invalid, a *[TimeoutError] or a *[ContentError]. If ctx has ended, the error wraps its cause.
// Any other error means that no response arrived. Error texts omit the URL's query, which may
// contain keys.
func (c Client) Do(ctx context.Context, r Request) (*Response, error) {
	req, err := newRequest(r)
	if err != nil {
		return nil, err
	}
	timeout := r.Timeout
	if timeout <= 0 || timeout > TimeoutMax {
		timeout = TimeoutMax
	}
	late := &TimeoutError{Request: Name(req.Method, req.URL), After: timeout}
	limited, cancel := context.WithTimeoutCause(ctx, timeout, late)
	defer cancel()
	resp, err := c.exchange(req.WithContext(limited))
	switch {
	case err == nil:
		return resp, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s: %w", Name(req.Method, req.URL), context.Cause(ctx))
	case limited.Err() != nil:
		return nil, late
	}
	var own *ContentError
	if errors.As(err, &own) {
		return nil, err
	}
	return nil, fmt.Errorf("%s: %w", Name(req.Method, req.URL), withoutURL(err))
}

// exchange sends req and reads the complete response.
func (c Client) exchange(req *http.Request) (*Response, error) {
	// The client has no cookie jar: a shared one would send the cookies of one instance with
	// the requests of another.
	client := &http.Client{Transport: c.Transport, CheckRedirect: c.redirect}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	tooLarge := &ContentError{Request: Name(req.Method, req.URL), Limit: c.ContentLimit}
	if resp.ContentLength > c.ContentLimit && req.Method != http.MethodHead {
		return nil, tooLarge
	}
	// The limit applies to the decompressed body.
	body, err := io.ReadAll(io.LimitReader(resp.Body, c.ContentLimit+1))
	if err != nil {
		return nil, fmt.Errorf("read the response: %w", err)
	}
	if int64(len(body)) > c.ContentLimit {
		return nil, tooLarge
	}
	absoluteLocation(resp)
	return &Response{Request: Name(req.Method, req.URL), StatusCode: resp.StatusCode, Header: resp.Header, Body: body}, nil
}

// absoluteLocation makes the Location of a 202 response absolute. It is relative to the URL
// that gave the response, after redirects (RFC 9110, section 10.2.2), which the caller does not
// know.
func absoluteLocation(resp *http.Response) {
	if resp.StatusCode != http.StatusAccepted || resp.Header.Get("Location") == "" {
		return
	}
	if location, err := resp.Location(); err == nil {
		resp.Header.Set("Location", location.String())
	}
}

// newRequest validates r. It moves a Host header to the field where net/http expects it.
func newRequest(r Request) (*http.Request, error) {
	if r.Method == "" {
		r.Method = http.MethodGet
	}
	refuse := func(reason string) (*http.Request, error) {
		return nil, &RequestError{Reason: reason}
	}
	target, err := url.Parse(r.URL)
	switch {
	case err != nil:
		return refuse(fmt.Sprintf("invalid URL: %v", withoutURL(err)))
	case target.Scheme != "http" && target.Scheme != "https":
		return refuse(fmt.Sprintf("URL %q does not begin with http:// or https://", withoutQuery(target)))
	case target.Hostname() == "":
		return refuse(fmt.Sprintf("URL %q has no host", withoutQuery(target)))
	}
	var body io.Reader
	if r.Content != "" {
		body = strings.NewReader(r.Content)
	}
	req, err := http.NewRequest(r.Method, r.URL, body)
	if err != nil {
		return refuse(withoutURL(err).Error())
	}
	req.Header = make(http.Header, len(r.Header)+2)
	for name, values := range r.Header {
		for _, v := range values {
			req.Header.Add(name, v)
		}
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
		req.Header.Del("Host")
	}
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", userAgent)
	}
	// The default content types are the same as in TaskHttpActivityShim.cs,
	// ConvertToHttpRequestMessage.
	switch contentType := req.Header.Get("Content-Type"); {
	case body == nil:
	case contentType == "":
		req.Header.Set("Content-Type", "text/plain")
	case strings.EqualFold(contentType, "application/x-www-form-urlencoded"):
		req.Header.Set("Content-Type", contentType+"; charset=utf-8")
	}
	return req, nil
}

// Name returns the name of a request in messages: its method and its URL without user and
// query, which may be secret.
func Name(method string, u *url.URL) string { return method + " " + withoutQuery(u) }

func withoutQuery(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Opaque: u.Opaque, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
}

// withoutURL returns the cause of a *url.Error, or err.
func withoutURL(err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// redirect decides whether to follow a redirect. As in .NET's HttpClientHandler, it follows at
// most 50 and none from HTTPS to HTTP. Otherwise the redirect itself is the response.
//
// In a redirect to another origin, and in all redirects after it, only the headers that
// [KeepSafe] keeps are sent. .NET removes only Authorization.
func (c Client) redirect(next *http.Request, via []*http.Request) error {
	first, last := via[0], via[len(via)-1]
	switch {
	case len(via) > redirectsMax,
		next.URL.Scheme != "http" && next.URL.Scheme != "https",
		last.URL.Scheme == "https" && next.URL.Scheme == "http":
		return http.ErrUseLastResponse
	}
	// The Referer that net/http adds includes the query, which may contain a key.
	next.Header.Del("Referer")
	if given := first.Header.Get("Referer"); given != "" {
		next.Header.Set("Referer", given)
	}
	// A Host header of the caller is meant for the first origin only.
	elsewhere := func(r *http.Request) bool { return !SameOrigin(first.URL, r.URL) }
	if elsewhere(next) || slices.ContainsFunc(via, elsewhere) {
		KeepSafe(next.Header, c.CrossOriginHeaders)
		next.Host = next.URL.Host
	}
	return nil
}
