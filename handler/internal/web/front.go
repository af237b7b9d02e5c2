package web

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"

	"github.com/labstack/echo/v4"
)

// A Config says where a server listens, and which requests it takes.
type Config struct {
	Address          string // that the server listens on
	BehindHost       bool   // requests come through the Functions host
	RoutePrefix      string
	SiteHostname     string // the public one, if requests do not tell it
	UseForwardedHost bool   // X-Forwarded-Host and -Proto count standalone, too
	LocalOnly        bool   // only this machine should call the app, and it asks for no key

	MaxBody, MaxBodies int64 // bytes of one request's body, and of all at once
}

// A Front is the middleware that all requests pass first. It recognises requests to the
// management API, refuses those of other sites' pages, and bounds bodies.
type Front struct {
	cfg    Config
	Bodies BodyRoom
}

// New returns a Front.
func New(cfg Config) *Front {
	f := &Front{cfg: cfg}
	f.Bodies.Left.Store(max(cfg.MaxBodies, cfg.MaxBody))
	return f
}

// ManagementBases returns the paths of the management API, first the one for URLs.
func (f *Front) ManagementBases() []string {
	bases := []string{GroupPath(f.cfg.RoutePrefix) + ManagementPath}
	if !f.cfg.BehindHost {
		bases = append(bases, WebhookPath)
	}
	return bases
}

// baseOf returns the base that path is below or at, without regard to case, as
// the extension matches literals; "" if it is none of them.
func (f *Front) baseOf(path string) string {
	for _, base := range f.ManagementBases() {
		if len(path) >= len(base) && strings.EqualFold(path[:len(base)], base) && (len(path) == len(base) || path[len(base)] == '/') {
			return base
		}
	}
	return ""
}

// CanonicalPath changes the case of the literal part of a path to the management API to
// that of its routes.
func (f *Front) CanonicalPath(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		base := f.baseOf(escapedPath(r.URL))
		if base == "" {
			return next(c)
		}
		c.Set(BaseKey, base)
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

// Origin returns the scheme and host under which the caller knows the app.
//
// Behind a host that proxies, X-Forwarded-Host and -Proto tell it, and Host is
// this server's own address. Behind one that forwards, Host is the public one,
// and what is in front of the host may tell the scheme. What no header tells
// comes from WEBSITE_HOSTNAME and from the rule by which the host makes the
// URLs of webhooks: https, except on the developer's own machine
// (azure-functions-host: WebHooks/DefaultScriptWebHookProvider.cs).
//
// Standalone, only the request itself counts, unless the app is configured to be behind a
// proxy of its own: everybody who can reach the server could send other headers.
func (f *Front) Origin(r *http.Request) string {
	if !f.cfg.BehindHost && !f.cfg.UseForwardedHost {
		scheme := "http"
		if r.TLS != nil {
			scheme = "https"
		}
		return scheme + "://" + r.Host
	}
	host := firstHost(r.Header.Get("X-Forwarded-Host"))
	if host == "" && (r.Host != f.cfg.Address || f.cfg.SiteHostname == "") {
		host = firstHost(r.Host)
	}
	if host == "" {
		host = f.cfg.SiteHostname
	}
	scheme := strings.ToLower(firstOf(r.Header.Get("X-Forwarded-Proto")))
	if scheme != "http" && scheme != "https" {
		scheme = "https"
		if isLocal(host) {
			scheme = "http"
		}
	}
	return scheme + "://" + host
}

// RefusePages refuses requests of other sites' pages to an app that is for this machine
// only: one that listens on loopback without a key, or runs below `func start`. A
// developer's browser could send them to the app's own routes and the management API.
//
// An app that other machines can reach decides which pages may call its own routes. So
// does one behind a proxy of its own.
func (f *Front) RefusePages(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if f.cfg.LocalOnly && (!f.cfg.UseForwardedHost || IsManagement(c)) {
			if err := f.checkHost(c.Request()); err != nil {
				return err
			}
			if err := f.CheckOrigin(c.Request()); err != nil && (IsManagement(c) || !fromLocalPage(c.Request())) {
				return err
			}
		}
		return next(c)
	}
}

// CheckOrigin refuses unsafe requests from pages of another origin.
func (f *Front) CheckOrigin(r *http.Request) error {
	asked := *r
	_, asked.Host, _ = strings.Cut(f.Origin(r), "://") // a host that proxies puts its own in r
	if err := http.NewCrossOriginProtection().Check(&asked); err != nil {
		return AnswerWith(http.StatusForbidden, ErrorBody{Message: "A page of another site may not do this: " + err.Error() + "."})
	}
	return nil
}

// checkHost refuses requests of a page whose host name resolves to an address of this
// machine (DNS rebinding): to the browser the app is then the page's own server. Such a
// request names the page's host; a user of this machine calls it localhost or by address.
func (f *Front) checkHost(r *http.Request) error {
	if f.cfg.UseForwardedHost || !fromThisMachine(r) {
		return nil
	}
	hosts := []string{r.Host}
	if f.cfg.BehindHost { // a page can send that header, too, if the host forwards
		for _, list := range r.Header.Values("X-Forwarded-Host") {
			hosts = append(hosts, strings.Split(list, ",")...)
		}
	}
	for _, host := range hosts {
		if host = nameOf(strings.TrimSpace(host)); !isOurName(host, f.cfg.SiteHostname) {
			return AnswerWith(http.StatusForbidden, ErrorBody{Message: fmt.Sprintf(
				"The request is for the host %q, which is not this app's. Call it localhost; or set DURABLE_KEY; "+
					"or, if it is behind a proxy of its own, httpSettings.useForwardedHost.", host)})
		}
	}
	return nil
}

// LimitBody bounds the body of a request, and the bodies of all requests. A body whose
// length is known and for which there is no room is refused before it is sent.
func (f *Front) LimitBody(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if r.Body == nil || r.Body == http.NoBody {
			return next(c)
		}
		if r.ContentLength > f.cfg.MaxBody {
			return &http.MaxBytesError{Limit: f.cfg.MaxBody}
		}
		if r.ContentLength > f.Bodies.Left.Load() {
			closeAfter(c.Response())
			return ErrBodies
		}
		body := &RoomedBody{
			ReadCloser: http.MaxBytesReader(c.Response(), r.Body, f.cfg.MaxBody), Room: &f.Bodies, Answer: c.Response(),
			paced: !IsManagement(c), // there the time of the whole is bounded
		}
		defer func() {
			f.Bodies.Left.Add(body.Taken)
			if body.read >= LargeBody {
				f.Bodies.freeSoon()
			}
		}()
		r.Body = body
		return next(c)
	}
}

// hostName matches a host with or without a port.
var hostName = regexp.MustCompile(`^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.%a-z]+\])(:[0-9]{1,5})?$`)

// firstOf returns the first of the values that proxies on the way have put
// into a header, which is the one the caller saw.
func firstOf(list string) string {
	first, _, _ := strings.Cut(list, ",")
	return strings.TrimSpace(first)
}

func firstHost(list string) string {
	if host := firstOf(list); hostName.MatchString(host) {
		return host
	}
	return ""
}

// isLocal reports whether host is on the developer's own machine or network:
// localhost, or an IP address.
func isLocal(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil
}

// IsLoopback reports whether only this machine can reach an address, which is a
// host with a port or without.
func IsLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// fromLocalPage reports whether a request comes from a page of a server on this machine,
// such as a front end under development.
func fromLocalPage(r *http.Request) bool {
	origin, err := url.Parse(r.Header.Get("Origin"))
	if err != nil {
		return false
	}
	host := origin.Hostname()
	return IsLoopback(host) || strings.HasSuffix(host, ".localhost")
}

// fromThisMachine reports whether a request came over the loopback network. Only there can
// an app without a key be reached.
func fromThisMachine(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && from.Addr().Unmap().IsLoopback()
}

// nameOf returns a host without its port.
func nameOf(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.Trim(host, "[]")
}

// isOurName reports whether a host cannot be that of another site's page: it is an
// address, a name that browsers do not resolve, or the app's own.
func isOurName(host, site string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if isLocal(host) || host == "" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	own, _, err := net.SplitHostPort(site)
	if err != nil {
		own = site
	}
	return strings.EqualFold(own, host)
}

// Where the management API is, after the route prefix and, standalone only, as
// in the .NET extension.
const (
	ManagementPath = "/durabletask"
	WebhookPath    = "/runtime/webhooks/durabletask"

	// ConsolePath is where the web console is below [ManagementPath].
	ConsolePath = "/console"
)

// BaseKey is the key in an echo.Context of the base path of a request to the management
// API.
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

// MendSlashes returns a segment as it was before a proxying Functions host changed it: the
// host decodes a path, except escaped slashes, and then escapes all percent signs, so that
// "a%2Fb" becomes "a%252Fb". An original "%252F" cannot be distinguished. Use it for names
// that callers choose: names of events may have slashes, and IDs with one are refused in
// each mode of the host. IDs of existing instances stay as they are, since another client
// may have made one with "%2F".
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
