package web

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/hostile"
	"github.com/labstack/echo/v4"
)

const ownSite = "mine.example"

// isLocalName reports whether a browser resolves a name to this machine without a DNS server.
func isLocalName(name string) bool {
	return strings.HasSuffix(strings.ToLower(name), ".localhost") || name == "127.0.0.10"
}

// A page of another site can have any of the refused names.
func TestFront_TrustsNoNameThatResemblesATrustedOne(t *testing.T) {
	t.Parallel()
	local := New(Config{RoutePrefix: "api", LocalOnly: true, SiteHostname: ownSite})
	proxied := New(Config{RoutePrefix: "api", LocalOnly: true, BehindHost: true, SiteHostname: ownSite + ":7071"})
	request := func(host string) *http.Request {
		r := httptest.NewRequest(http.MethodPost, "/api/orders", nil)
		r.Host, r.RemoteAddr = host, "127.0.0.1:50000"
		return r
	}
	from := func(origin string) *http.Request {
		r := request("localhost:8080")
		r.Header.Set("Origin", origin)
		return r
	}
	below := func(base string) func(string) bool {
		return func(path string) bool { return strings.HasPrefix(path, base+"/") }
	}
	for _, check := range []struct {
		name    string
		trusted []string
		names   func(string) []string
		accepts func(string) bool
		allowed func(string) bool
	}{
		{
			"the host of a request",
			[]string{"localhost", "LOCALHOST", "app.localhost", ownSite},
			hostile.Hosts,
			func(name string) bool { return local.checkHost(request(name)) == nil }, isLocalName,
		},
		{
			"the host of a request with a port",
			[]string{"localhost", "app.localhost", ownSite},
			hostile.Hosts,
			func(name string) bool { return local.checkHost(request(name+":8080")) == nil }, isLocalName,
		},
		{"a forwarded host", []string{"localhost", ownSite}, hostile.Hosts, func(name string) bool {
			r := request("127.0.0.1:8080")
			r.Header.Set("X-Forwarded-Host", "localhost, "+name)
			return proxied.checkHost(r) == nil
		}, isLocalName},
		{
			"the origin of a page",
			[]string{"localhost", "127.0.0.1", "app.localhost"},
			hostile.Hosts,
			func(name string) bool { return fromLocalPage(from("http://" + name + ":3000")) }, isLocalName,
		},
		{
			"the origin of a page without a port",
			[]string{"localhost", "127.0.0.1"},
			hostile.Hosts,
			func(name string) bool { return fromLocalPage(from("https://" + name)) }, isLocalName,
		},
		{
			"the origin of a form",
			[]string{"localhost"},
			hostile.Hosts,
			func(name string) bool { return local.CheckOrigin(from("http://"+name+":8080")) == nil }, nil,
		},
		{"a listening address", []string{"localhost", "127.0.0.1", "::1"}, hostile.Names, IsLoopback, func(name string) bool {
			host, port, _ := strings.Cut(name, ":")
			invalidPort := (host == "localhost" || host == "127.0.0.1") && (port == "" || port == "evil")
			return invalidPort || name == "127.0.0.10" || strings.HasPrefix(name, "::1%") // a zone of a loopback address
		}},
		{
			"a host without https",
			[]string{"localhost", "10.0.0.7"},
			hostile.Hosts,
			func(name string) bool { return strings.HasPrefix(proxied.Origin(request(name)), "http:") },
			func(name string) bool { return name == "0.0.0.7" || strings.HasPrefix(name, "10.0.0.70") },
		},
		{"a path", []string{"/api/durabletask"}, hostile.Names, func(path string) bool { return local.baseOf(path) != "" }, below("/api/durabletask")},
		{"a webhook path", []string{WebhookPath}, hostile.Names, func(path string) bool { return local.baseOf(path) != "" }, below(WebhookPath)},
	} {
		for _, trusted := range check.trusted {
			hostile.NoneOf(t, check.name, trusted, check.names(trusted), check.accepts, check.allowed)
		}
	}
}

func TestFront_TrustsNoOtherWritingOfAHost(t *testing.T) {
	t.Parallel()
	local := New(Config{LocalOnly: true, SiteHostname: ownSite})
	for host, want := range map[string]bool{
		"localhost.": true, "[::1]": true, "[::1]:8080": true, "127.0.0.1": true, "": true, "192.168.1.7:8080": true,
		"[::1].evil.example": false, "[::1].evil.example:8080": false, "evil.example[::1]": false, "0x7f.1": false, "2130706433": false, "127.1": false,
		"127.0.0.1.evil.example": false, "localhost\x00.evil.example": false, "lоcalhost": false, "localhost..": false, ".localhost.evil": false,
		"localhost evil.example": false, "localhost/evil.example": false, "evil.example/localhost": false, "evil.example#.localhost.evil": false,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host, r.RemoteAddr = host, "127.0.0.1:50000"
		if got := local.checkHost(r) == nil; got != want {
			t.Errorf("host %q: accepted %t, want %t", host, got, want)
		}
	}
	for origin, want := range map[string]bool{
		"http://localhost:3000": true, "http://[::1]:3000": true, "http://127.8.9.1": true,
		"null": false, "": false, "localhost": false, "http://": false, "file://": false, "http://localhost@evil.example": false, "http://evil.example/localhost": false,
		"http://evil.example?localhost": false, "http://evil.example#.localhost": false, "http://0.0.0.0": false, "http://128.0.0.1": false, "http://[::2]": false,
		"http://lоcalhost": false, "http://localhost.evil.example": false, "http://localhost:80:evil.example": false,
	} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Origin", origin)
		if got := fromLocalPage(r); got != want {
			t.Errorf("origin %q: local %t, want %t", origin, got, want)
		}
	}
}

// URLs in answers contain only hosts that cannot change their meaning.
func TestFront_UsesNoHostWithOtherParts(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"shop.example": true, "shop.example:8080": true, "[::1]:80": true, "a_b-c.d": true, "[fe80::1%25eth0]": true,
		"evil.example/x": false, "a b": false, "a@b": false, `a"b`: false, "a<b>": false, "a:123456": false, "a:": false, ":80": false, "a%2fb": false,
		"a#b": false, "a?b": false, `a\b`: false, "é.example": false, "a\r\nX: y": false, "": false, "[::1]evil": false, "a:80:90": false, "a:8o": false,
	} {
		if got := firstHost(host) != ""; got != want {
			t.Errorf("host %q: used %t, want %t", host, got, want)
		}
	}
}

// An escaped slash does not split a segment, and no path leaves the API.
func TestSegmentsBelow_DecodesEachSegmentAlone(t *testing.T) {
	t.Parallel()
	const base = "/api/durabletask"
	for path, want := range map[string][]string{
		"/instances/a": {"instances", "a"}, "/instances/a%2Fb": {"instances", "a/b"}, "/instances%2Fa": {"instances/a"}, "/%69nstances": {"instances"},
		"/instances/..": {"instances", ".."}, "/instances/%2e%2e/x": {"instances", "..", "x"}, "/instances/..%2f..": {"instances", "../.."},
		"/instances/a%5Cb": {"instances", `a\b`}, "/instances/a;b=c": {"instances", "a;b=c"}, "/instances/a%3Fb%23c": {"instances", "a?b#c"}, "/instances//a": nil, "/": {},
	} {
		u, err := url.Parse("http://localhost" + base + path)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := SegmentsBelow(u, base)
		if !slices.Equal(got, want) || ok != (want != nil) {
			t.Errorf("%s: %q, %t, want %q", path, got, ok, want)
		}
	}
}

// The path is compared as it was sent: a path that only decodes to the base is not below it, because
// no route has such a path.
func TestCanonicalPath_RecognizesTheBaseAsItWasSent(t *testing.T) {
	t.Parallel()
	f := New(Config{RoutePrefix: "api"})
	for path, want := range map[string]bool{
		"/api/durabletask": true, "/api/durabletask/": true, "/API/DurableTask/instances": true, "/api/durabletask/%2e%2e/orders": true,
		"/api/durabletas%6B/instances": false, "/api%2Fdurabletask/instances": false, "/api/durabletask%2Finstances": false, "//api/durabletask": false,
		"/api/./durabletask": false, "/x/../api/durabletask": false, "/api/durabletask;x/instances": false, "/api/durabletask%00": false, "/api/durabletask.": false,
	} {
		r := httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil)
		c := echo.New().NewContext(r, httptest.NewRecorder())
		if err := f.CanonicalPath(func(echo.Context) error { return nil })(c); err != nil {
			t.Fatal(err)
		}
		if got := IsManagement(c); got != want {
			t.Errorf("%s: part of the API %t, want %t", path, got, want)
		}
	}
}
