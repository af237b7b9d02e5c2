package handler

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
)

// Credentials that the routes of the management API require if there is a key. The lists are written by
// hand and do not depend on the tested code. A route in the second or third list is open to callers
// without the key.
var (
	routesWithTheKey = []string{
		"POST orchestrators/{functionName}", "POST orchestrators/{functionName}/{instanceId}",
		"GET entities", "GET entities/{entityName}", "GET entities/{entityName}/{entityKey}",
		"POST entities/{entityName}", "POST entities/{entityName}/{entityKey}",
		"DELETE entities/{entityName}", "DELETE entities/{entityName}/{entityKey}",
		"GET instances", "DELETE instances",
		"POST makeprimary", "POST undecodable/retry", "POST backup", "GET scale", "GET configuration", "GET openapi.json",
	}
	routesWithACode = []string{ // of the instance, which a start returns
		"GET instances/{instanceId}", "GET instances/{instanceId}/tracking",
		"GET instances/{instanceId}/why", "GET instances/{instanceId}/history", "DELETE instances/{instanceId}",
		"POST instances/{instanceId}/raiseEvent/{eventName}", "POST instances/{instanceId}/terminate", "POST instances/{instanceId}/suspend",
		"POST instances/{instanceId}/resume", "POST instances/{instanceId}/rewind", "POST instances/{instanceId}/restart",
	}
	routesForAll = []string{"GET health/live", "GET health/ready"} // without the reasons

	// routesWithoutAHub are answered at once in every state of the hub.
	routesWithoutAHub = []string{"GET configuration", "GET openapi.json", "GET health/live", "GET health/ready"}

	allRoutes = slices.Concat(routesWithTheKey, routesWithACode, routesForAll)
)

// methodAndPath returns the method and an example path of a route, relative to the API.
func methodAndPath(route string) (method, path string) {
	method, path, _ = strings.Cut(route, " ")
	return method, strings.NewReplacer("{instanceId}", "running", "{functionName}", "Greet", "{eventName}", "E", "{entityName}", "n", "{entityKey}", "k").Replace(path)
}

func TestRoutes_MatchTheHandWrittenLists(t *testing.T) {
	t.Parallel()
	var got []string
	for _, route := range management.Routes() {
		name := route.Method + " " + route.Path
		got = append(got, name)
		if route.Public != slices.Contains(routesForAll, name) || route.Open != slices.Contains(routesWithACode, name) || route.Always != slices.Contains(routesWithoutAHub, name) {
			t.Errorf("%s: public %v, open with an instance's code %v, always %v; the lists say otherwise", name, route.Public, route.Open, route.Always)
		}
	}
	for _, route := range allRoutes {
		if !slices.Contains(got, route) {
			t.Errorf("%s does not exist", route)
		}
	}
	for _, route := range got {
		if !slices.Contains(allRoutes, route) {
			t.Errorf("%s is in none of the lists of credentials; add it to routesForAll, routesWithACode or another list of this file", route)
		}
	}
}

// Only the management API, the console and the health checks have handlers.
func TestAccess_OnlyTheManagementAPIIsServed(t *testing.T) {
	t.Parallel()
	for behindHost, want := range map[bool][]string{
		false: {"/*", "/api/durabletask", "/api/durabletask/*", "/api/durabletask/console", "/api/durabletask/console/*", "/health/live", "/health/ready", "/runtime/webhooks/durabletask", "/runtime/webhooks/durabletask/*"},
		true:  {"/*", "/api/durabletask", "/api/durabletask/*", "/api/durabletask/console", "/api/durabletask/console/*"},
	} {
		cfg := fakeConfig(t, newFullHub())
		cfg.Key, cfg.BehindHost = theKey, behindHost
		paths := map[string]bool{}
		for _, route := range readyServer(t, App{}, cfg).echo.Routes() {
			paths[route.Path] = true
		}
		if got := slices.Sorted(maps.Keys(paths)); !slices.Equal(got, want) {
			t.Errorf("behind the host %v: %q are served, want %q", behindHost, got, want)
		}
	}
}

// Every route, and every other method at its path, requires the key, the code of the instance, or
// nothing, as listed.
func TestAccess_EachRouteRequiresItsCredential(t *testing.T) {
	t.Parallel()
	methods := []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"}
	cfg := fakeConfig(t, newFullHub())
	cfg.Key = theKey
	s := readyServer(t, App{}, cfg)
	own, others := s.api.Access.Code("running", time.Now()), s.api.Access.Code("suspended", time.Now())
	for _, route := range allRoutes {
		_, template, _ := strings.Cut(route, " ")
		_, path := methodAndPath(route)
		for _, base := range []string{managed, web.WebhookPath + "/"} {
			for _, method := range methods {
				name := method + " " + template
				forAll, byCode := slices.Contains(routesForAll, name), slices.Contains(routesWithACode, name)
				exists := forAll || byCode || slices.Contains(routesWithTheKey, name)
				for _, caller := range []struct {
					with   string
					served bool
				}{{"", forAll}, {"?code=" + own, forAll || byCode}, {"?code=" + others, forAll}, {"?code=wrong", forAll}, {"?code=" + theKey, true}} {
					w := call(s, method, base+path+caller.with, "")
					if refused := w.Code == http.StatusUnauthorized; refused == caller.served || refused && w.Body.Len() > 0 {
						t.Errorf("%s %s with %q: %d %s", method, base+path, caller.with, w.Code, w.Body)
					}
					if !exists && w.Code < 400 {
						t.Errorf("%s %s: %d, but the route does not exist", method, base+path, w.Code)
					}
				}
			}
		}
	}
}

// A page of another site can use no route to change anything. With DNS rebinding it can use no route at
// all.
func TestPages_OfOtherSitesCanUseNoManagementRoute(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){
		"standalone":       func(*Config) {},
		"below func start": func(c *Config) { c.BehindHost, c.onDevMachine = true, true },
	} {
		cfg := fakeConfig(t, newFullHub())
		change(&cfg)
		s := readyServer(t, starter, cfg)
		for _, route := range append([]string{"GET /", "GET /nowhere", "GET /api/orders", "POST /api/orders"}, allRoutes...) {
			method, path := methodAndPath(route)
			if !strings.HasPrefix(path, "/") {
				path = managed + path
			}
			for host, origin := range map[string]string{"localhost:8080": "https://evil.example", "evil.example:8080": "http://evil.example:8080"} {
				r := httptest.NewRequest(method, path, nil)
				r.Host, r.RemoteAddr = host, "127.0.0.1:50000"
				r.Header.Set("Origin", origin)
				w := httptest.NewRecorder()
				s.ServeHTTP(w, r)
				want := method != http.MethodGet || host != "localhost:8080"
				if got := w.Code == http.StatusForbidden; got != want {
					t.Errorf("%s: %s at %s from a page of %s: %d %s", name, route, host, origin, w.Code, w.Body)
				}
			}
		}
	}
}

// Until the hub is open, routes that need it wait for it and then fail. Other routes answer at once.
func TestRoutes_ThatNeedNoHubAreAnsweredAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, route := range allRoutes {
			method, path := methodAndPath(route)
			began := time.Now()
			w := call(New(App{}, fakeConfig(t, newFullHub())), method, managed+path, "")
			waited := time.Since(began) == management.StartupTimeout && w.Code == http.StatusServiceUnavailable
			if took := time.Since(began); waited == slices.Contains(routesWithoutAHub, route) || took != 0 && !waited {
				t.Errorf("%s: %d after %v", route, w.Code, took)
			}
		}
	})
}
