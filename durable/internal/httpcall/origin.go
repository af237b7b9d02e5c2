package httpcall

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// SameOrigin reports whether two URLs have the same scheme, host and port, so that credentials
// for one may be sent to the other.
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

// safeHeaders lists the headers, in canonical form, that may be sent to another origin. They describe
// the wanted resource or the content, not the sender.
var safeHeaders = []string{
	"Accept", "Accept-Charset", "Accept-Encoding", "Accept-Language", "Cache-Control", "Content-Encoding", "Content-Language",
	"Content-Length", "Content-Type", "Date", "If-Match", "If-Modified-Since", "If-None-Match", "If-Range", "If-Unmodified-Since",
	"Pragma", "Prefer", "Range", "Referer", "Te", "Traceparent", "Tracestate", "User-Agent",
	"X-Correlation-Id", "X-Ms-Client-Request-Id", "X-Ms-Version", "X-Request-Id",
}

// KeepSafe removes all headers from h except the safe ones and those in more. Names are
// compared without case.
func KeepSafe(h http.Header, more []string) {
	for name := range h {
		isName := func(other string) bool { return strings.EqualFold(name, other) }
		if !slices.ContainsFunc(safeHeaders, isName) && !slices.ContainsFunc(more, isName) {
			delete(h, name)
		}
	}
}

// redirectsMax is the maximum number of redirects (.NET's
// HttpClientHandler.MaxAutomaticRedirections).
const redirectsMax = 50
