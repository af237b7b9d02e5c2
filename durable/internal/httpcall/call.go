// Package httpcall sends one HTTP request, for the activity that does so on
// behalf of orchestrators. It bounds what a request may take, keeps credentials
// from going where they were not meant to go, and turns bodies into text.
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

// TimeoutMax is how long a request may take, from the first byte sent to the
// last one received (WebJobs.Extensions.DurableTask/DurableHttpClientFactory.cs,
// GetClient).
const TimeoutMax = 240 * time.Second

// userAgent is what requests say that name no agent of their own.
const userAgent = "durablefunctions-go"

// A Request is what to send.
type Request struct {
	Method  string // empty means GET
	URL     string // absolute
	Header  http.Header
	Content string        // empty means that there is no body
	Timeout time.Duration // zero, or above TimeoutMax, means that
}

// A Response is what came back.
type Response struct {
	Request    string // as Name has it
	StatusCode int
	Header     http.Header
	Body       []byte
}

// A Client sends requests.
type Client struct {
	Transport    http.RoundTripper
	ContentLimit int64 // of a response's body, in bytes

	// CrossOriginHeaders may be sent to other origins besides those known to be safe.
	CrossOriginHeaders []string
}

// Do sends r, follows redirects and reads the response. The error is a
// *[RequestError] if r cannot be sent at all, a *[TimeoutError] or a
// *[ContentError]; ctx's if that has ended; otherwise the request got no
// response. Its text has no query, where keys often are.
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

// exchange sends req and reads what comes back, whole.
func (c Client) exchange(req *http.Request) (*Response, error) {
	// There is no cookie jar: one that all instances share would give the
	// cookies of one to the next.
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
	// What counts is what it unpacks to.
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

// absoluteLocation makes the address at which to ask again absolute. Only here
// is it known what it is relative to: the URL that gave this response, after
// redirects (RFC 9110, section 10.2.2).
func absoluteLocation(resp *http.Response) {
	if resp.StatusCode != http.StatusAccepted || resp.Header.Get("Location") == "" {
		return
	}
	if location, err := resp.Location(); err == nil {
		resp.Header.Set("Location", location.String())
	}
}

// newRequest checks r. What stands in a header that net/http keeps elsewhere is
// put there.
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
		return refuse(fmt.Sprintf("its URL cannot be read: %v", withoutURL(err)))
	case target.Scheme != "http" && target.Scheme != "https":
		return refuse(fmt.Sprintf("%s is no URL that begins with http:// or https://", bare(target)))
	case target.Hostname() == "":
		return refuse(fmt.Sprintf("%s names no host", bare(target)))
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
	// The types of a body that has none are those of TaskHttpActivityShim.cs,
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

// Name returns what messages call a request: its method, and its URL without
// what may be secret.
func Name(method string, u *url.URL) string { return method + " " + bare(u) }

func bare(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Opaque: u.Opaque, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
}

// withoutURL returns what a *url.Error says besides the URL.
func withoutURL(err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// redirect decides whether a redirect is followed: by the rules of .NET's
// HttpClientHandler not more than 50, and none to something less safe than
// before. One that is not followed is the response.
//
// Another origin gets only headers that [KeepSafe] leaves, and so does the first
// one after it. .NET takes only Authorization out.
func (c Client) redirect(next *http.Request, via []*http.Request) error {
	first, last := via[0], via[len(via)-1]
	switch {
	case len(via) > redirectsMax,
		next.URL.Scheme != "http" && next.URL.Scheme != "https",
		last.URL.Scheme == "https" && next.URL.Scheme == "http":
		return http.ErrUseLastResponse
	}
	// The referrer that net/http adds has the query, and with it perhaps a key.
	next.Header.Del("Referer")
	if given := first.Header.Get("Referer"); given != "" {
		next.Header.Set("Referer", given)
	}
	// A Host that the caller chose is for the first origin.
	elsewhere := func(r *http.Request) bool { return !SameOrigin(first.URL, r.URL) }
	if elsewhere(next) || slices.ContainsFunc(via, elsewhere) {
		KeepSafe(next.Header, c.CrossOriginHeaders)
		next.Host = next.URL.Host
	}
	return nil
}
