package handler

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

const (
	consolePath = "/api/durabletask/console"
	theReadKey  = "a key with which one can only read"
)

func TestConsole_IsServedOnlyWhereTheAppCanIdentifyCallers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(*Config)
		want   int
	}{
		{"on this machine", func(*Config) {}, http.StatusOK},
		{"below func start", func(c *Config) { c.BehindHost, c.onDevMachine = true, true }, http.StatusOK},
		{"on Azure", func(c *Config) { c.BehindHost = true }, http.StatusNotFound},
		{"on Azure with a key", func(c *Config) { c.BehindHost, c.Key = true, theKey }, http.StatusSeeOther},
		{"with a key", func(c *Config) { c.Key = theKey }, http.StatusSeeOther},
	} {
		cfg := fakeConfig(t, newFullHub())
		tt.change(&cfg)
		s := readyServer(t, App{}, cfg)
		for _, path := range []string{"", "/", "/entities", "/hub"} {
			if w := call(s, http.MethodGet, consolePath+path, ""); w.Code != tt.want {
				t.Errorf("%s: %s: %d %s, want %d", tt.name, path, w.Code, w.Body, tt.want)
			}
		}
		// The rest of the API still needs a key, with any path prefix.
		for _, path := range []string{"/../instances", "/..%2Finstances", "/instances/running/terminate", "%2F..%2Finstances"} {
			if w := call(s, http.MethodGet, consolePath+path, ""); strings.Contains(w.Body.String(), "runtimeStatus") {
				t.Errorf("%s: %s: %d %s", tt.name, path, w.Code, w.Body)
			}
		}
	}
}

func TestAccess_TheReadKeyGrantsOnlyReading(t *testing.T) {
	t.Parallel()
	for _, behindHost := range []bool{false, true} {
		cfg := fakeConfig(t, newFullHub())
		cfg.Key, cfg.ReadKey, cfg.BehindHost = theKey, theReadKey, behindHost
		s := readyServer(t, App{}, cfg)
		for _, route := range allRoutes {
			method, path := methodAndPath(route)
			for _, w := range []int{
				call(s, method, managed+path, "", "x-functions-key", theReadKey).Code,
				call(s, method, managed+path+"?code="+strings.ReplaceAll(theReadKey, " ", "%20"), "").Code,
			} {
				if refused := w == http.StatusForbidden; refused == (method == http.MethodGet) || w == http.StatusUnauthorized {
					t.Errorf("behind the host %v: %s with the read key: %d", behindHost, route, w)
				}
			}
			if w := call(s, method, managed+path, "", "x-functions-key", "wrong").Code; !slices.Contains(routesForAll, route) && w != http.StatusUnauthorized {
				t.Errorf("%s with a wrong key: %d", route, w)
			}
		}
	}
}

func TestAccess_AReadKeyNeedsAnotherKey(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		key, readKey string
		serves       bool
	}{{"", theReadKey, false}, {theKey, theKey, false}, {theKey, theReadKey, true}, {theKey, "", true}} {
		cfg := fakeConfig(t, newFullHub())
		cfg.Key, cfg.ReadKey = tt.key, tt.readKey
		s := New(App{}, cfg)
		if problem := s.cfg.Problem; (problem == nil) != tt.serves || problem != nil && !strings.Contains(problem.Error(), "set DURABLE_KEY") {
			t.Errorf("%+v: %v", tt, problem)
		}
	}
}

// The hub page shows configuration problems.
func TestConsole_ShowsConfigurationProblems(t *testing.T) {
	t.Parallel()
	cfg := fakeConfig(t, newFullHub())
	cfg.Address = "0.0.0.0:80"
	s := New(App{}, cfg)
	if w := call(s, http.MethodGet, consolePath+"/hub", ""); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "set DURABLE_KEY") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := call(s, http.MethodGet, consolePath, ""); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "set DURABLE_KEY") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// The overview lists no instances from the storage.
func TestConsole_CountsInstancesOnRequestOnly(t *testing.T) {
	t.Parallel()
	hub := newFullHub()
	s := readyServer(t, App{}, fakeConfig(t, hub))
	for path, want := range map[string]int{"": 0, "/overview/now": 0, "/hub": 0, "/overview/counts": 1} {
		before := len(hub.queries)
		if w := call(s, http.MethodGet, consolePath+path, ""); w.Code != http.StatusOK {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
		if n := len(hub.queries) - before; n != want {
			t.Errorf("%s lists instances %d times, want %d", path, n, want)
		}
	}
	if q := hub.queries[len(hub.queries)-1]; q.PageSize != 1000 || q.Fetch.Input || q.Fetch.Output {
		t.Errorf("instances are counted by %+v", q)
	}
}
