package handler

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"
)

// Where the management API is, after the route prefix and, standalone only, as
// in the .NET extension.
const (
	managementPath = "/durabletask"
	webhookPath    = "/runtime/webhooks/durabletask"
)

// managementBases returns the paths that the management API is found at, the
// one that URLs are made with first.
func (f *front) managementBases() []string {
	bases := []string{groupPath(f.cfg.RoutePrefix) + managementPath}
	if !f.cfg.BehindHost {
		bases = append(bases, webhookPath)
	}
	return bases
}

// baseOf returns the base that path is below or at, without regard to case, as
// the extension matches literals; "" if it is none of them.
func (f *front) baseOf(path string) string {
	for _, base := range f.managementBases() {
		if len(path) >= len(base) && strings.EqualFold(path[:len(base)], base) && (len(path) == len(base) || path[len(base)] == '/') {
			return base
		}
	}
	return ""
}

// baseKey is under which key of an echo.Context the base is kept of a request
// to the management API.
const baseKey = "durablefunctions.base"

// canonicalPath spells the literal part of a path to the management API as its
// routes do.
func (f *front) canonicalPath(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		base := f.baseOf(escapedPath(r.URL))
		if base == "" {
			return next(c)
		}
		c.Set(baseKey, base)
		// None of the literals is ever escaped, so that the path and its escaped
		// form begin alike.
		spelled := *r.URL
		spelled.Path = base + spelled.Path[len(base):]
		if spelled.RawPath != "" {
			spelled.RawPath = base + spelled.RawPath[len(base):]
		}
		r.URL = &spelled
		return next(c)
	}
}

// isManagement reports whether a request is one to the management API.
func isManagement(c echo.Context) bool { return c.Get(baseKey) != nil }

// escapedPath returns the path as it came. Unlike [url.URL.EscapedPath] it bears
// characters that should have been escaped, such as curl sends.
func escapedPath(u *url.URL) string {
	if path, err := url.PathUnescape(u.RawPath); err == nil && path == u.Path && path != "" {
		return u.RawPath
	}
	return u.EscapedPath()
}

// segmentsBelow returns the segments of a request's path below base, decoded
// one by one, so that an escaped slash stays in its segment. ok is false if one
// is empty or cannot be decoded.
func segmentsBelow(u *url.URL, base string) (segments []string, ok bool) {
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

// mendSlashes returns what a segment was before the Functions host passed it on
// that proxies: it decodes a path, but for escaped slashes, and then escapes all
// percent signs, so that "a%2Fb" comes as "a%252Fb". What was so from the
// beginning is not told apart. That is for names that callers choose: names of
// events may have slashes, and IDs with one are refused in each mode of the
// host. What is asked about by its ID is looked for as it comes, since others may
// have made an instance whose ID has "%2F".
func mendSlashes(r *http.Request, segment string) string {
	if r.Header.Get("X-Ms-Invocation-Id") == "" { // the host forwards or wraps
		return segment
	}
	return strings.NewReplacer("%2F", "/", "%2f", "/").Replace(segment)
}

// groupPath returns the path at which routes with the given prefix begin.
func groupPath(prefix string) string {
	if prefix == "" {
		return ""
	}
	return "/" + prefix
}
