package handler

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/hostile"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
)

// Each check compares a whole name. A name that begins or ends like the right one opens nothing.
func TestNames_ThatResembleTrustedOnesOpenNothing(t *testing.T) {
	t.Parallel()
	cfg := fakeConfig(t, newFullHub())
	cfg.Key, cfg.ReadKey = theKey, theReadKey
	s := readyServer(t, App{}, cfg)
	code := s.api.Access.Code("running", time.Now())

	ran := 0
	hostedConfig := fakeConfig(t, newFakeHub())
	hostedConfig.RoutePrefix, hostedConfig.BehindHost, hostedConfig.Address = "", true, handlerAddress
	hosted := readyServer(t, App{Triggers: []Trigger{countingTrigger(&ran)}}, hostedConfig)

	// get returns the status of a request. The path is given as segments.
	get := func(query url.Values, segments ...string) int {
		for i := range segments {
			segments[i] = url.PathEscape(segments[i])
		}
		return call(s, http.MethodGet, managed+strings.Join(segments, "/")+"?"+query.Encode(), "").Code
	}
	withKey := func(name, value string) url.Values { return url.Values{"code": {theKey}, name: {value}} }
	opened := func(status int) bool { return status < 400 }
	for _, check := range []struct {
		name, trusted string
		accepts       func(string) bool
	}{
		{"the key", theKey, func(key string) bool { return opened(get(url.Values{"code": {key}}, "instances")) }},
		{"the key for reading", theReadKey, func(key string) bool { return opened(get(url.Values{"code": {key}}, "instances")) }},
		{"the key in a header", theKey, func(key string) bool {
			return opened(call(s, http.MethodGet, managed+"instances", "", "X-Functions-Key", key).Code)
		}},
		{"the code of an instance", code, func(code string) bool { return opened(get(url.Values{"code": {code}}, "instances", "running")) }},
		{"the instance of a code", "running", func(id string) bool {
			return opened(get(url.Values{"code": {s.api.Access.Code(durable.InstanceID(id), time.Now())}}, "instances", "running"))
		}},
		{"the hub of a request", "MyHub", func(hub string) bool { return opened(get(withKey("taskHub", hub), "instances")) }},
		{"the connection of a request", "Storage", func(name string) bool { return opened(get(withKey("connection", name), "instances")) }},
		{"the full connection of a request", "AzureWebJobsStorage", func(name string) bool { return opened(get(withKey("connection", name), "instances")) }},
		{"the path of the console", "console", func(name string) bool { return get(nil, name) != http.StatusUnauthorized }},
		{"the path of the health checks", "health", func(name string) bool { return get(nil, name, "live") != http.StatusUnauthorized }},
		{"the health check", "live", func(name string) bool { return get(nil, "health", name) != http.StatusUnauthorized }},
		{"the host of an invocation", handlerAddress, func(host string) bool {
			before := ran
			call(hosted, http.MethodPost, "/Count", `{"Data":{"input":"\"x\""},"Metadata":{}}`, "Host", host)
			return ran > before
		}},
	} {
		hostile.NoneOf(t, check.name, check.trusted, hostile.Names(check.trusted), check.accepts, nil)
	}
}

// Only the fixed segments of a route match, each as a whole.
func TestRoutes_MatchNoSegmentThatResemblesTheirs(t *testing.T) {
	t.Parallel()
	for _, route := range management.Routes() {
		names := strings.Split(route.Path, "/")
		for i, trusted := range names {
			if strings.HasPrefix(trusted, "{") {
				continue
			}
			hostile.NoneOf(t, route.Method+" "+route.Path, trusted, hostile.Names(trusted), func(name string) bool {
				segments := append([]string(nil), names...)
				segments[i] = name
				_, ok := route.Match(segments)
				return ok
			}, nil)
		}
	}
}

// No path of the console reaches a file outside of its folder of static files, or a page without a
// session.
func TestConsole_PathsLeadToNothingElse(t *testing.T) {
	t.Parallel()
	cfg := fakeConfig(t, newFullHub())
	cfg.Key = theKey
	s := readyServer(t, App{}, cfg)
	for _, path := range []string{
		"console/../instances", "console/%2e%2e/instances", "console/..%2finstances", "console/static/../instances", "console/static/..%2ftemplates%2flogin.html",
		"console/static/%2e%2e/templates/login.html", "console/static/", "console/login/../instances", "console/login%2f..%2finstances", "console/login/x", "console/loginx",
		"console/static%2f..%2finstances", "console//instances", "console/static/..\\templates\\login.html",
	} {
		r := httptest.NewRequest(http.MethodGet, "http://localhost:8080"+managed+path, nil)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if toLogin := w.Code == http.StatusSeeOther && strings.HasSuffix(w.Header().Get("Location"), "/console/login"); w.Code < 400 && !toLogin {
			t.Errorf("GET %s: %d %s", path, w.Code, w.Body)
		}
	}
}
