package azuritetest

import (
	"net"
	"net/http"
	"strings"
)

// The Close method of a test server closes idle connections of http.DefaultTransport, and that can break requests
// of tests that run in parallel. So the variable hides the method for it.
func init() { http.DefaultTransport = struct{ http.RoundTripper }{http.DefaultTransport} }

func between(s, from, to string) string {
	_, s, _ = strings.Cut(s, from)
	s, _, _ = strings.Cut(s, to)
	return s
}

func answers(address string) bool {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}
