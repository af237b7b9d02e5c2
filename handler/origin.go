package handler

import (
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
)

// hostName matches a host with or without a port.
var hostName = regexp.MustCompile(`^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.%a-z]+\])(:[0-9]{1,5})?$`)

// origin returns the scheme and host under which the caller knows the app.
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
func (f *front) origin(r *http.Request) string {
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

// isLoopback reports whether only this machine can reach an address, which is a
// host with a port or without.
func isLoopback(address string) bool {
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
