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

// A Config configures a [Front].
type Config struct {
	Address          string // address of the server
	BehindHost       bool   // requests come through the Functions host
	RoutePrefix      string
	SiteHostname     string // public host name, for requests that do not provide one
	UseForwardedHost bool   // use X-Forwarded-Host and -Proto in a standalone server, too
	LocalOnly        bool   // only this machine should call the app: it has no key or runs below Core Tools

	MaxBody, MaxBodies int64 // bytes of one body, and of all bodies at the same time
}

// A Front is the first middleware for all requests. It recognizes requests to the management API,
// refuses requests from pages of other sites, and limits bodies.
type Front struct {
	cfg    Config
	Bodies BodyMemory
}

// New returns a Front.
func New(cfg Config) *Front {
	f := &Front{cfg: cfg}
	f.Bodies.Available.Store(max(cfg.MaxBodies, cfg.MaxBody))
	return f
}

// ManagementBases returns the paths of the management API. URLs use the first one.
func (f *Front) ManagementBases() []string {
	bases := []string{GroupPath(f.cfg.RoutePrefix) + ManagementPath}
	if !f.cfg.BehindHost {
		bases = append(bases, WebhookPath)
	}
	return bases
}

// baseOf returns the path of the management API that path is at or below, or "". Like the extension it
// ignores case.
func (f *Front) baseOf(path string) string {
	for _, base := range f.ManagementBases() {
		if len(path) >= len(base) && strings.EqualFold(path[:len(base)], base) && (len(path) == len(base) || path[len(base)] == '/') {
			return base
		}
	}
	return ""
}

// CanonicalPath replaces the base in a path to the management API with its spelling in the routes.
func (f *Front) CanonicalPath(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		base := f.baseOf(escapedPath(r.URL))
		if base == "" {
			return next(c)
		}
		c.Set(BaseKey, base)
		// The base contains no characters that are escaped, so the path and its escaped form start with
		// the same base.
		spelled := *r.URL
		spelled.Path = base + spelled.Path[len(base):]
		if spelled.RawPath != "" {
			spelled.RawPath = base + spelled.RawPath[len(base):]
		}
		r.URL = &spelled
		return next(c)
	}
}

// Origin returns the scheme and host under which the caller reaches the app.
//
// Behind a proxying host, X-Forwarded-Host and -Proto contain them, and Host is this server's own
// address. Behind a forwarding host, Host is the public host, and a proxy in front of the host may
// provide the scheme. If no header provides a value, the host is WEBSITE_HOSTNAME, and the scheme is
// https except on a developer's machine. The Functions host uses the same rule for the URLs of webhooks
// (azure-functions-host: WebHooks/DefaultScriptWebHookProvider.cs).
//
// A standalone server uses only the request itself, unless it is configured to be behind a proxy: any
// caller could send the other headers.
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

// RefusePages refuses requests from pages of other sites to an app that only this machine should use. Such
// an app listens on a loopback address without a key, or runs below `func start`. Otherwise a page of
// another site could call the app through the developer's browser.
//
// An app that other machines can reach decides itself which pages may call its routes. So does an app
// behind its own proxy.
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
	_, asked.Host, _ = strings.Cut(f.Origin(r), "://") // a proxying host replaces Host in r
	if err := http.NewCrossOriginProtection().Check(&asked); err != nil {
		return AnswerWith(http.StatusForbidden, ErrorBody{Message: "A page of another site may not do this: " + err.Error() + "."})
	}
	return nil
}

// checkHost protects against DNS rebinding: the host name of a foreign page resolves to an address of
// this machine, so the browser takes the app for the page's own server. Such a request contains the
// page's host name. A user of this machine uses localhost or an address.
func (f *Front) checkHost(r *http.Request) error {
	if f.cfg.UseForwardedHost || !fromThisMachine(r) {
		return nil
	}
	hosts := []string{r.Host}
	if f.cfg.BehindHost { // if the host forwards, a page can send this header
		for _, list := range r.Header.Values("X-Forwarded-Host") {
			hosts = append(hosts, strings.Split(list, ",")...)
		}
	}
	for _, host := range hosts {
		if host = nameOf(strings.TrimSpace(host)); !isOurName(host, f.cfg.SiteHostname) {
			return AnswerWith(http.StatusForbidden, ErrorBody{Message: fmt.Sprintf(
				"The request is for the host %q, which is not a host of this app. Use localhost, or set DURABLE_KEY, "+
					"or, behind your own proxy, set httpSettings.useForwardedHost.", host)})
		}
	}
	return nil
}

// LimitBody limits the body of a request and the total size of all bodies. It refuses a body whose
// known length is too large before the body is sent.
func (f *Front) LimitBody(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if r.Body == nil || r.Body == http.NoBody {
			return next(c)
		}
		if r.ContentLength > f.cfg.MaxBody {
			return &http.MaxBytesError{Limit: f.cfg.MaxBody}
		}
		if r.ContentLength > f.Bodies.Available.Load() {
			closeAfter(c.Response())
			return ErrBodyMemory
		}
		body := &ReservingBody{
			ReadCloser: http.MaxBytesReader(c.Response(), r.Body, f.cfg.MaxBody), Memory: &f.Bodies, Answer: c.Response(),
			paced: !IsManagement(c), // BodyText limits the time of bodies of the management API
		}
		defer func() {
			f.Bodies.Available.Add(body.Reserved)
			if body.read >= LargeBody {
				f.Bodies.freeSoon()
			}
		}()
		r.Body = body
		return next(c)
	}
}

// hostName matches a host with an optional port.
var hostName = regexp.MustCompile(`^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.%a-z]+\])(:[0-9]{1,5})?$`)

// firstOf returns the first value in a header that several proxies have extended. It is the value that
// the caller used.
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

// isLocal reports whether host is localhost or an IP address, that is on the developer's machine or
// network.
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

// IsLoopback reports whether an address is a loopback address. The address is a host with an optional
// port.
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

// fromLocalPage reports whether a request comes from a page of a server on this machine, such as a
// front end in development.
func fromLocalPage(r *http.Request) bool {
	origin, err := url.Parse(r.Header.Get("Origin"))
	if err != nil {
		return false
	}
	host := origin.Hostname()
	return IsLoopback(host) || strings.HasSuffix(host, ".localhost")
}

// fromThisMachine reports whether a request came over the loopback network. An app without a key is
// reachable only there.
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

// isOurName reports whether host cannot be the host of another site's page. It is an address, a name
// that browsers do not resolve, or the app's own name.
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

// Paths of the management API: below the route prefix, and the path of the .NET extension, which only a
// standalone server has.
const (
	ManagementPath = "/durabletask"
	WebhookPath    = "/runtime/webhooks/durabletask"

	// ConsolePath is the path of the web console, relative to [ManagementPath].
	ConsolePath = "/console"
)

// BaseKey is the key in an [echo.Context] of the base path of a request to the management API.
const BaseKey = "durablefunctions.base"

// IsManagement reports whether a request is for the management API.
func IsManagement(c echo.Context) bool { return c.Get(BaseKey) != nil }

// escapedPath returns the path as it was sent. Unlike [url.URL.EscapedPath] it keeps characters that
// should have been escaped, which curl sends.
func escapedPath(u *url.URL) string {
	if path, err := url.PathUnescape(u.RawPath); err == nil && path == u.Path && path != "" {
		return u.RawPath
	}
	return u.EscapedPath()
}

// SegmentsBelow returns the segments of a request's path below base. It decodes each segment
// separately, so an escaped slash does not split a segment. It returns ok = false if a segment is empty
// or cannot be decoded.
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

// RestoreSlashes restores a segment that a proxying Functions host has changed. The host decodes the path
// except escaped slashes, and then escapes all percent signs, so "a%2Fb" becomes "a%252Fb". An original
// "%252F" cannot be distinguished.
//
// Use RestoreSlashes only for names that callers choose, such as names of events, which may contain
// slashes. New IDs with a slash are refused in every mode of the host. Do not use it for IDs of existing
// instances: another client may have created an ID with "%2F".
func RestoreSlashes(r *http.Request, segment string) string {
	if r.Header.Get("X-Ms-Invocation-Id") == "" { // the host forwards or wraps
		return segment
	}
	return strings.NewReplacer("%2F", "/", "%2f", "/").Replace(segment)
}

// GroupPath returns the path of the group of routes with the given prefix.
func GroupPath(prefix string) string {
	if prefix == "" {
		return ""
	}
	return "/" + prefix
}
