package httpcall

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// SameOrigin reports whether two URLs have scheme, host and port in common: a
// credential for the one may be sent to the other.
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
