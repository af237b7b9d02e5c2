package handler

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A page at evil.example whose name is looked up as 127.0.0.1 is of the same
// origin as the app, to the browser.
func TestAccess_NamesOfOthersAreRefusedOnThisMachine(t *testing.T) {
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
			if w.Code != tt.want || tt.want == http.StatusForbidden && !strings.Contains(w.Body.String(), "Call it localhost") {
				t.Errorf("GET %s at %s from %s: %d %s, want %d", path, tt.host, tt.from, w.Code, w.Body, tt.want)
			}
		}
	}
}
