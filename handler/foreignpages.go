package handler

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"
)

// refusePages refuses what pages of other sites make a browser send to an app that
// is for this machine only: one that listens on loopback and asks for no key, or
// runs below `func start`. The app's own routes are as open as the management API
// there, and a developer's browser is on both sides of the door.
//
// An app that others can reach on purpose decides for itself which pages may call
// its own routes. So does one that says it is behind a proxy of its own.
func (f *front) refusePages(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if f.cfg.LocalOnly && (!f.cfg.UseForwardedHost || isManagement(c)) {
			if err := f.checkHost(c.Request()); err != nil {
				return err
			}
			if err := f.checkOrigin(c.Request()); err != nil && (isManagement(c) || !fromLocalPage(c.Request())) {
				return err
			}
		}
		return next(c)
	}
}

// checkOrigin refuses what changes something and comes from a page of another
// origin.
func (f *front) checkOrigin(r *http.Request) error {
	asked := *r
	_, asked.Host, _ = strings.Cut(f.origin(r), "://") // a host that proxies puts its own in r
	if err := http.NewCrossOriginProtection().Check(&asked); err != nil {
		return answerWith(http.StatusForbidden, errorBody{Message: "A page of another site may not do this: " + err.Error() + "."})
	}
	return nil
}

// fromLocalPage reports whether a request comes from a page that a server on this
// machine made, such as that of a front end under development.
func fromLocalPage(r *http.Request) bool {
	origin, err := url.Parse(r.Header.Get("Origin"))
	if err != nil {
		return false
	}
	host := origin.Hostname()
	return isLoopback(host) || strings.HasSuffix(host, ".localhost")
}

// checkHost refuses what a page makes a browser send that has had its own name
// looked up as an address of this machine: to the browser the app is then the
// page's own server, and no other check tells. Such a request names the page's
// host, while whoever works on this machine calls it localhost or by address.
func (f *front) checkHost(r *http.Request) error {
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
			return answerWith(http.StatusForbidden, errorBody{Message: fmt.Sprintf(
				"The request is for the host %q, which is not this app's. Call it localhost; or set DURABLE_KEY; "+
					"or, if it is behind a proxy of its own, httpSettings.useForwardedHost.", host)})
		}
	}
	return nil
}

// fromThisMachine reports whether a request came over the loopback network. Only
// there may an app be reached that asks for no key.
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

// isOurName reports whether a host cannot be the name of another's page: it is an
// address, a name that browsers look up nowhere, or the app's own.
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
