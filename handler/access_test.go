package handler

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/labstack/echo/v4"
)

func TestAccess_AddressThatOthersReachNeedsAKey(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		address, key string
		behindHost   bool
		serves       bool
	}{
		{"127.0.0.1:8080", "", false, true},
		{"[::1]:8080", "", false, true},
		{"localhost:8080", "", false, true},
		{"0.0.0.0:8080", "", false, false},
		{"[::]:8080", "", false, false},
		{":8080", "", false, false},
		{"192.168.1.7:8080", "", false, false},
		{"0.0.0.0:8080", theKey, false, true},
		{"0.0.0.0:8080", "", true, true},
	} {
		cfg := fakeConfig(t, newFakeHub())
		cfg.Address, cfg.Key, cfg.BehindHost = tt.address, tt.key, tt.behindHost
		s := New(App{}, cfg)
		if serves := s.cfg.Problem == nil; serves != tt.serves {
			t.Errorf("%+v: %v", tt, s.cfg.Problem)
		}
		if !tt.serves && !strings.Contains(s.cfg.Problem.Error(), "set DURABLE_KEY") {
			t.Errorf("%+v: %v does not say what to do", tt, s.cfg.Problem)
		}
	}
}

func TestAccess_TheEnvironmentSaysAddressAndKey(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		env  processEnvironment
		want string
	}{
		{processEnvironment{}, "127.0.0.1"},
		{processEnvironment{Address: "0.0.0.0"}, "0.0.0.0"},
		{processEnvironment{Address: "[::]"}, "::"},
		{processEnvironment{Address: "0.0.0.0", HandlerPort: "1"}, "127.0.0.1"},
	} {
		if got := tt.env.host(); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.env, got, tt.want)
		}
	}
	cfg := configure(processEnvironment{Key: "short"}, newSettings(), []string{storageSetting})
	if cfg.Key != "short" || len(cfg.Notices) != 1 || strings.Contains(cfg.Notices[0], "short ") {
		t.Errorf("key %q, notices %q", cfg.Key, cfg.Notices)
	}
}

// Every route but those of health wants the key.
func TestAccess_EveryRouteWantsTheKey(t *testing.T) {
	t.Parallel()
	cfg := fakeConfig(t, newFullHub())
	cfg.Key = theKey
	s := readyServer(t, App{}, cfg)
	for _, route := range managementRoutes() {
		path := strings.NewReplacer("{instanceId}", "running", "{functionName}", "Greet", "{eventName}", "E", "{entityName}", "n", "{entityKey}", "k").Replace(route.path)
		for _, base := range []string{managed, webhookPath + "/"} {
			w := call(s, route.method, base+path, "")
			if (w.Code == http.StatusUnauthorized) == route.public || w.Code == http.StatusUnauthorized && w.Body.Len() > 0 {
				t.Errorf("%s %s: %d %s", route.method, base+path, w.Code, w.Body)
			}
			if w := call(s, route.method, base+path, "", "x-functions-key", theKey); w.Code == http.StatusUnauthorized {
				t.Errorf("%s %s with the key: %d", route.method, base+path, w.Code)
			}
		}
	}
}

// What a route of the app hands out to callers without a key works for them, and
// is no key to anything else.
func TestAccess_URLsOfAnAppsRouteOpenOneInstance(t *testing.T) {
	t.Parallel()
	hub := newFullHub()
	hub.put("a b/é", history.Running, nil)
	cfg := fakeConfig(t, hub)
	cfg.Key = theKey
	s := readyServer(t, starter, cfg)
	w := call(s, "POST", "/api/orders", "")
	location := strings.TrimPrefix(w.Header().Get(echo.HeaderLocation), "http://localhost:8080")
	if w.Code != http.StatusAccepted || strings.Contains(w.Body.String(), theKey) {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if got := call(s, "GET", location, ""); got.Code != http.StatusAccepted {
		t.Errorf("%s: %d", location, got.Code)
	}
	_, query, _ := strings.Cut(location, "?")
	for _, other := range []string{"instances/running?", "instances?", "configuration?", "orchestrators/Greet?"} {
		if got := call(s, "GET", managed+other+query, ""); got.Code != http.StatusUnauthorized {
			t.Errorf("%s: %d, want 401", other, got.Code)
		}
	}
}

// Whatever happens, the log tells neither the key nor the codes made of it.
func TestAccess_KeysAreNeverLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	hub := newFullHub()
	cfg := fakeConfig(t, hub)
	cfg.Key, cfg.Logger = theKey, slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	app := App{Routes: starterThatPanics}
	s := readyServer(t, app, cfg)
	s.logStart("127.0.0.1:1")
	code := s.management.access.code("running")
	for _, target := range []string{
		managed + "instances/running?code=" + theKey, managed + "instances/running?code=" + code, "/api/panic?code=" + theKey, "/nowhere?code=" + theKey,
		managed + "instances/suspended/suspend?code=" + theKey, managed + "configuration?code=" + theKey,
	} {
		for _, method := range []string{"GET", "POST"} {
			call(s, method, target, "", "x-functions-key", theKey)
		}
	}
	hub.fail(errNoStorage)
	call(s, "GET", managed+"instances/running?code="+theKey, "")
	if text := log.String(); strings.Contains(text, theKey) || strings.Contains(text, code) || !strings.Contains(text, "panic in a route") || !strings.Contains(text, "effective configuration") {
		t.Errorf("the log tells\n%s", text)
	}
	w := call(s, "GET", managed+"configuration", "", "x-functions-key", theKey)
	if w.Code != http.StatusOK || strings.Contains(w.Body.String(), theKey) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func starterThatPanics(api *echo.Group, _ *durable.Client) {
	api.Any("/panic", func(echo.Context) error { panic("told") })
}
