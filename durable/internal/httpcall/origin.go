package httpcall

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// SameOrigin reports whether two URLs have scheme, host and port in common: what
// may be told to the one may be told to the other.
func SameOrigin(a, b *url.URL) bool {
	return strings.EqualFold(a.Scheme, b.Scheme) && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	switch strings.ToLower(u.Scheme) {
	case "http":
		return "80"
	case "https":
		return "443"
	}
	return ""
}

// FunctionsKey is the header with the key of an Azure function.
const FunctionsKey = "X-Functions-Key"

// safe are the headers, in canonical form, that another origin may learn: they say
// what is wanted and in which form, not who asks. Those of content go with it when
// a redirect keeps it.
var safe = []string{
	"Accept", "Accept-Charset", "Accept-Encoding", "Accept-Language", "Cache-Control", "Content-Encoding", "Content-Language",
	"Content-Length", "Content-Type", "Date", "If-Match", "If-Modified-Since", "If-None-Match", "If-Range", "If-Unmodified-Since",
	"Pragma", "Prefer", "Range", "Referer", "Te", "Traceparent", "Tracestate", "User-Agent",
	"X-Correlation-Id", "X-Ms-Client-Request-Id", "X-Ms-Version", "X-Request-Id",
}

// KeepSafe takes out of h what another origin must not learn: every header but
// those that are known to hold no key, and more, in any case.
func KeepSafe(h http.Header, more []string) {
	for name := range h {
		isName := func(other string) bool { return strings.EqualFold(name, other) }
		if !slices.ContainsFunc(safe, isName) && !slices.ContainsFunc(more, isName) {
			delete(h, name)
		}
	}
}

// redirectsMax is how many redirects are followed (.NET's
// HttpClientHandler.MaxAutomaticRedirections).
const redirectsMax = 50

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
