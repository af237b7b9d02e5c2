package web

import (
	"net"
	"net/netip"
	"regexp"
	"strings"
)

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
