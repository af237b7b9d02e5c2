package web

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// fromLocalPage reports whether a request comes from a page that a server on this
// machine made, such as that of a front end under development.
func fromLocalPage(r *http.Request) bool {
	origin, err := url.Parse(r.Header.Get("Origin"))
	if err != nil {
		return false
	}
	host := origin.Hostname()
	return IsLoopback(host) || strings.HasSuffix(host, ".localhost")
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
