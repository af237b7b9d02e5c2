package web

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"
)

// Where the management API is, after the route prefix and, standalone only, as
// in the .NET extension.
const (
	ManagementPath = "/durabletask"
	WebhookPath    = "/runtime/webhooks/durabletask"
)

// BaseKey is under which key of an echo.Context the base is kept of a request
// to the management API.
const BaseKey = "durablefunctions.base"

// IsManagement reports whether a request is one to the management API.
func IsManagement(c echo.Context) bool { return c.Get(BaseKey) != nil }

// escapedPath returns the path as it came. Unlike [url.URL.EscapedPath] it bears
// characters that should have been escaped, such as curl sends.
func escapedPath(u *url.URL) string {
	if path, err := url.PathUnescape(u.RawPath); err == nil && path == u.Path && path != "" {
		return u.RawPath
	}
	return u.EscapedPath()
}

// SegmentsBelow returns the segments of a request's path below base, decoded
// one by one, so that an escaped slash stays in its segment. ok is false if one
// is empty or cannot be decoded.
func SegmentsBelow(u *url.URL, base string) (segments []string, ok bool) {
	rest := strings.Trim(escapedPath(u)[len(base):], "/")
	if rest == "" {
		return nil, true
	}
	for raw := range strings.SplitSeq(rest, "/") {
		segment, err := url.PathUnescape(raw)
		if err != nil || segment == "" {
			return nil, false
		}
		segments = append(segments, segment)
	}
	return segments, true
}

// MendSlashes returns what a segment was before the Functions host passed it on
// that proxies: it decodes a path, but for escaped slashes, and then escapes all
// percent signs, so that "a%2Fb" comes as "a%252Fb". What was so from the
// beginning is not told apart. That is for names that callers choose: names of
// events may have slashes, and IDs with one are refused in each mode of the
// host. What is asked about by its ID is looked for as it comes, since others may
// have made an instance whose ID has "%2F".
func MendSlashes(r *http.Request, segment string) string {
	if r.Header.Get("X-Ms-Invocation-Id") == "" { // the host forwards or wraps
		return segment
	}
	return strings.NewReplacer("%2F", "/", "%2f", "/").Replace(segment)
}

// GroupPath returns the path at which routes with the given prefix begin.
func GroupPath(prefix string) string {
	if prefix == "" {
		return ""
	}
	return "/" + prefix
}
