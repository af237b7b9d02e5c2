package web

import (
	"fmt"
	"net/http"
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

// A Front is what all requests pass first: it finds out whether they are for the management
// API, refuses those that pages of other sites send, and bounds their bodies.
type Front struct {
	cfg    Config
	Bodies BodyRoom
}

// New returns a front by its configuration.
func New(cfg Config) *Front {
	f := &Front{cfg: cfg}
	f.Bodies.Left.Store(max(cfg.MaxBodies, cfg.MaxBody))
	return f
}

// ManagementBases returns the paths that the management API is found at, the
// one that URLs are made with first.
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

// CanonicalPath spells the literal part of a path to the management API as its
// routes do.
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
// Standalone, only the request itself counts, unless the app is configured to
// be behind a proxy of its own: whoever can reach the server could claim
// anything in other headers.
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

// RefusePages refuses what pages of other sites make a browser send to an app that
// is for this machine only: one that listens on loopback and asks for no key, or
// runs below `func start`. The app's own routes are as open as the management API
// there, and a developer's browser is on both sides of the door.
//
// An app that others can reach on purpose decides for itself which pages may call
// its own routes. So does one that says it is behind a proxy of its own.
func (f *Front) RefusePages(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if f.cfg.LocalOnly && (!f.cfg.UseForwardedHost || IsManagement(c)) {
			if err := f.checkHost(c.Request()); err != nil {
				return err
			}
			if err := f.checkOrigin(c.Request()); err != nil && (IsManagement(c) || !fromLocalPage(c.Request())) {
				return err
			}
		}
		return next(c)
	}
}

// checkOrigin refuses what changes something and comes from a page of another
// origin.
func (f *Front) checkOrigin(r *http.Request) error {
	asked := *r
	_, asked.Host, _ = strings.Cut(f.Origin(r), "://") // a host that proxies puts its own in r
	if err := http.NewCrossOriginProtection().Check(&asked); err != nil {
		return AnswerWith(http.StatusForbidden, ErrorBody{Message: "A page of another site may not do this: " + err.Error() + "."})
	}
	return nil
}

// checkHost refuses what a page makes a browser send that has had its own name
// looked up as an address of this machine: to the browser the app is then the
// page's own server, and no other check tells. Such a request names the page's
// host, while whoever works on this machine calls it localhost or by address.
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

// LimitBody bounds the body of a request, and the bodies of all of them. One whose
// length is known and for which there is no room now is refused before it is sent.
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
