package handler

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// If only this machine should call an app, a page of another site can use no route of it, including the
// app's own. It can neither change anything nor, by DNS rebinding, read anything.
func TestPages_OfOtherSitesCanUseNoRouteOfALocalApp(t *testing.T) {
	t.Parallel()
	type app struct {
		name    string
		guarded bool // its own routes
		change  func(*Config)
	}
	apps := []app{
		{"standalone on loopback", true, func(*Config) {}},
		{"below func start", true, func(c *Config) { c.BehindHost, c.onDevMachine = true, true }},
		{"below func start with a key", true, func(c *Config) { c.BehindHost, c.onDevMachine, c.Key = true, true, theKey }},
		{"on Azure", false, func(c *Config) { c.BehindHost = true }},
		{"bound to the world", false, func(c *Config) { c.Address, c.Key = "0.0.0.0:8080", theKey }},
		{"behind a proxy of its own", false, func(c *Config) { c.UseForwardedHost = true }},
	}
	evil := map[string][]string{
		"another site":                 {"Host", "localhost:8080", "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"},
		"another site, an old browser": {"Host", "localhost:8080", "Origin", "https://evil.example"},
		"a site in the network":        {"Host", "localhost:8080", "Origin", "http://192.168.1.7", "Sec-Fetch-Site", "cross-site"},
		"a page without an origin":     {"Host", "localhost:8080", "Origin", "null", "Sec-Fetch-Site", "cross-site"},
		"a name looked up as ours":     {"Host", "evil.example:8080", "Origin", "http://evil.example:8080", "Sec-Fetch-Site", "same-origin"},
		"the same, with a header":      {"Host", "evil.example:8080", "X-Forwarded-Host", "localhost:8080", "Sec-Fetch-Site", "same-origin"},
		"the same, proxied":            {"Host", "127.0.0.1:8080", "X-Forwarded-Host", "evil.example:8080", "Sec-Fetch-Site", "same-origin"},
	}
	good := map[string][]string{
		"a program":           {"Host", "localhost:8080"},
		"the app's own page":  {"Host", "localhost:8080", "Origin", "http://localhost:8080", "Sec-Fetch-Site", "same-origin"},
		"an old browser":      {"Host", "localhost:8080", "Origin", "http://localhost:8080"},
		"the same, proxied":   {"Host", "127.0.0.1:8080", "X-Forwarded-Host", "localhost:7071", "X-Forwarded-Proto", "http", "Origin", "http://localhost:7071"},
		"a front end here":    {"Host", "localhost:8080", "Origin", "http://localhost:3000", "Sec-Fetch-Site", "same-site"},
		"a link in a message": {"Host", "localhost:8080", "Sec-Fetch-Site", "none"},
	}
	for _, a := range apps {
		cfg := fakeConfig(t, newFullHub())
		a.change(&cfg)
		s := readyServer(t, starter, cfg)
		ask := func(target string, headers []string) int {
			r := httptest.NewRequest(http.MethodPost, target, nil)
			r.RemoteAddr = "127.0.0.1:50000"
			for i := 0; i < len(headers); i += 2 {
				r.Header.Set(headers[i], headers[i+1])
			}
			r.Host = headers[1]
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			return w.Code
		}
		for page, headers := range evil {
			if page == "the same, proxied" && !cfg.BehindHost {
				continue // this app ignores the header
			}
			if got := ask("/api/orders", headers); (got == http.StatusForbidden) != a.guarded {
				t.Errorf("%s: %s at the app's own route: %d", a.name, page, got)
			}
			if got := ask("/nowhere", headers); a.guarded && got != http.StatusForbidden {
				t.Errorf("%s: %s where no route is: %d", a.name, page, got)
			}
		}
		if got := ask(managed+"instances/running/terminate", good["a front end here"]); a.name == "standalone on loopback" && got != http.StatusForbidden {
			t.Errorf("%s: a page of another port at the management API: %d", a.name, got)
		}
		for page, headers := range good {
			if page == "the same, proxied" && !cfg.BehindHost {
				continue
			}
			if got := ask("/api/orders", headers); got != http.StatusAccepted {
				t.Errorf("%s: %s: %d", a.name, page, got)
			}
		}
	}
}

// DNS rebinding: if the name of evil.example resolves to 127.0.0.1, the browser considers its page and
// the app to have the same origin.
func TestAccess_ForeignHostNamesAreRefusedOnThisMachine(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		host, from string
		change     func(*Config)
		want       int
	}{
		{host: "evil.example:8080", from: "127.0.0.1:50000", want: http.StatusForbidden},
		{host: "evil.example", from: "[::1]:50000", want: http.StatusForbidden},
		{host: "localhost.evil.example:8080", from: "[::ffff:127.0.0.1]:50000", want: http.StatusForbidden},
		{host: "localhost:8080", from: "127.0.0.1:50000", want: http.StatusOK},
		{host: "LocalHost.:8080", from: "127.0.0.1:50000", want: http.StatusOK},
		{host: "app.localhost:8080", from: "127.0.0.1:50000", want: http.StatusOK},
		{host: "127.0.0.1:8080", from: "127.0.0.1:50000", want: http.StatusOK},
		{host: "[::1]:8080", from: "[::1]:50000", want: http.StatusOK},
		{host: "mine.example:8080", from: "127.0.0.1:50000", change: func(c *Config) { c.SiteHostname = "mine.example" }, want: http.StatusOK},
		{host: "evil.example:8080", from: "127.0.0.1:50000", change: func(c *Config) { c.SiteHostname = "mine.example" }, want: http.StatusForbidden},
		{host: "shop.example", from: "127.0.0.1:50000", change: func(c *Config) { c.UseForwardedHost = true }, want: http.StatusOK},
		{host: "evil.example:8080", from: "127.0.0.1:50000", change: func(c *Config) { c.Key = theKey }, want: http.StatusUnauthorized},
		{host: "app.azurewebsites.net", from: "127.0.0.1:50000", change: func(c *Config) { c.BehindHost = true }, want: http.StatusOK},
	} {
		cfg := fakeConfig(t, newFullHub())
		if tt.change != nil {
			tt.change(&cfg)
		}
		s := readyServer(t, App{}, cfg)
		for _, path := range []string{managed + "instances", managed + "configuration"} {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.Host, r.RemoteAddr = tt.host, tt.from
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if w.Code != tt.want || tt.want == http.StatusForbidden && !strings.Contains(w.Body.String(), "Use localhost") {
				t.Errorf("GET %s at %s from %s: %d %s, want %d", path, tt.host, tt.from, w.Code, w.Body, tt.want)
			}
		}
	}
}
