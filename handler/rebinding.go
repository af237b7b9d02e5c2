package handler

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// checkHost refuses what a page makes a browser send that has had its own name
// looked up as an address of this machine: to the browser the app is then the
// page's own server, and no other check tells. Such a request names the page's
// host, while whoever works on this machine calls it localhost or by address.
func (s *Server) checkHost(r *http.Request) error {
	if s.cfg.UseForwardedHost || !fromThisMachine(r) || isOurName(hostOf(r), s.cfg.SiteHostname) {
		return nil
	}
	return &answerError{http.StatusForbidden, errorBody{Message: fmt.Sprintf(
		"The request is for the host %q, which is not this app's. Call it localhost; or set DURABLE_KEY; "+
			"or, if it is behind a proxy of its own, httpSettings.useForwardedHost.", hostOf(r))}}
}

// fromThisMachine reports whether a request came over the loopback network. Only
// there may an app be reached that asks for no key.
func fromThisMachine(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && from.Addr().Unmap().IsLoopback()
}

// hostOf returns the host that a request names, without its port.
func hostOf(r *http.Request) string {
	if host, _, err := net.SplitHostPort(r.Host); err == nil {
		return host
	}
	return strings.Trim(r.Host, "[]")
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
