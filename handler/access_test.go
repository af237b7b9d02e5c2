package handler

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
	"github.com/labstack/echo/v4"
)

func TestAccess_APublicAddressNeedsAKey(t *testing.T) {
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
			t.Errorf("%+v: %v has no advice", tt, s.cfg.Problem)
		}
	}
}

func TestAccess_EnvironmentVariablesSetAddressAndKey(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		env  settings.Environment
		want string
	}{
		{settings.Environment{}, "127.0.0.1"},
		{settings.Environment{Address: "0.0.0.0"}, "0.0.0.0"},
		{settings.Environment{Address: "[::]"}, "::"},
		{settings.Environment{Address: "0.0.0.0", HandlerPort: "1"}, "127.0.0.1"},
	} {
		if got := tt.env.ListenHost(); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.env, got, tt.want)
		}
	}
	cfg := configure(settings.Environment{Key: "short"}, settings.New(), []string{storageSetting})
	if cfg.Key != "short" || len(cfg.Notices) != 1 || strings.Contains(cfg.Notices[0], "short ") {
		t.Errorf("key %q, notices %q", cfg.Key, cfg.Notices)
	}
}

// The URLs in the answer of an app's route give a caller without the key access to one instance and to
// nothing else. Behind the host they pass on the key of the host, and never a key of the app.
func TestAccess_URLsOfAnAppsRouteGrantAccessToOneInstance(t *testing.T) {
	t.Parallel()
	const hostKey = "the-host-key=="
	for _, tt := range []struct {
		behindHost bool
		query      string
		header     string
		passedOn   bool
	}{
		{false, "", "", false},
		{false, "?code=" + hostKey, "", false},
		{false, "", theKey, false},
		{true, "", "", false},
		{true, "?code=" + hostKey, "", true},
		{true, "", hostKey, true},
		{true, "", theKey, false},
		{true, "", theReadKey, false},
		{true, "?code=" + theKey, hostKey, true},
		{true, "?code=" + hostKey, theKey, true},
		{true, "?code=other", hostKey, true}, // the host checks the header
	} {
		hub := newFullHub()
		hub.put("a b/é", history.Running, nil)
		cfg := fakeConfig(t, hub)
		cfg.Key, cfg.ReadKey, cfg.BehindHost = theKey, theReadKey, tt.behindHost
		s := readyServer(t, starter, cfg)
		w := call(s, "POST", "/api/orders"+tt.query, "", "x-functions-key", tt.header)
		if w.Code != http.StatusAccepted || strings.Contains(w.Body.String(), theKey) || strings.Contains(w.Body.String(), theReadKey) {
			t.Fatalf("%+v: %d %s", tt, w.Code, w.Body)
		}
		for range 2 { // the second URL is in the answer to the first
			at, err := url.Parse(w.Header().Get(echo.HeaderLocation))
			if err != nil {
				t.Fatal(err)
			}
			if given := at.Query().Get("code") == hostKey; given != tt.passedOn {
				t.Errorf("%+v: %s has the host's key: %t", tt, at, given)
			}
			if w = call(s, "GET", at.RequestURI(), ""); w.Code != http.StatusAccepted {
				t.Errorf("%+v: %s: %d", tt, at, w.Code)
			}
			for _, other := range []string{"instances/running?", "instances?", "configuration?", "orchestrators/Greet?"} {
				if got := call(s, "GET", managed+other+at.RawQuery, ""); got.Code != http.StatusUnauthorized {
					t.Errorf("%+v: %s: %d, want 401", tt, other, got.Code)
				}
			}
		}
	}
}

// The log contains neither the key nor codes derived from it.
func TestAccess_KeysAreNeverLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	hub := newFullHub()
	cfg := fakeConfig(t, hub)
	cfg.Key, cfg.ReadKey, cfg.Logger = theKey, theReadKey, slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	app := App{Routes: starterThatPanics}
	s := readyServer(t, app, cfg)
	s.logStart("127.0.0.1:1")
	code := s.api.Access.Code("running", time.Now())
	for _, target := range []string{
		managed + "instances/running?code=" + theKey, managed + "instances/running?code=" + code, "/api/panic?code=" + theKey, "/nowhere?code=" + theKey,
		managed + "instances/running?code=k&sig=" + code, managed + "instances/suspended/suspend?code=" + theKey, managed + "configuration?code=" + theKey,
	} {
		for _, method := range []string{"GET", "POST"} {
			call(s, method, target, "", "x-functions-key", theKey)
			call(s, method, target, "", "x-functions-key", theReadKey)
		}
	}
	hub.fail(errNoStorage)
	call(s, "GET", managed+"instances/running?code="+theKey, "")
	if text := log.String(); strings.Contains(text, theKey) || strings.Contains(text, theReadKey) || strings.Contains(text, code) || !strings.Contains(text, "panic in a route") || !strings.Contains(text, "effective configuration") {
		t.Errorf("the log contains\n%s", text)
	}
	w := call(s, "GET", managed+"configuration", "", "x-functions-key", theKey)
	if w.Code != http.StatusOK || strings.Contains(w.Body.String(), theKey) || strings.Contains(w.Body.String(), theReadKey) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func starterThatPanics(api *echo.Group, _ *durable.Client) {
	api.Any("/panic", func(echo.Context) error { panic("told") })
}

// The URLs in the answer to a start are valid for that instance only, on each provider.
func TestAccess_ACodeIsValidForOneInstanceOnlyOnEachProvider(t *testing.T) {
	t.Parallel()
	for name, open := range everyHub {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub := open(t)
			cfg := fakeConfig(t, hub)
			cfg.Key = theKey
			server := httptest.NewServer(readyServer(t, App{}, cfg))
			defer server.Close()
			begin := func(path string) ManagementPayload {
				t.Helper()
				var payload ManagementPayload
				status, answer := request(t, "POST", server.URL+managed+path, "x-functions-key", theKey)
				if err := json.Unmarshal(answer, &payload); err != nil || status != http.StatusAccepted {
					t.Fatalf("%s: %d %s %v", path, status, answer, err)
				}
				return payload
			}
			// refused sends all requests that a code authorizes, and returns how many are refused.
			refused := func(p ManagementPayload) (n int) {
				t.Helper()
				for uri, method := range map[string]string{
					p.StatusQueryGetURI: "GET", strings.Replace(p.StatusQueryGetURI, "?", "/tracking?", 1): "GET",
					strings.ReplaceAll(p.SendEventPostURI, "{eventName}", "E"): "POST", p.SuspendPostURI: "POST",
					p.ResumePostURI: "POST", p.RewindPostURI: "POST", p.RestartPostURI + "&restartWithNewInstanceId=false": "POST",
				} {
					if status, _ := request(t, method, uri); status == http.StatusUnauthorized {
						n++
					}
				}
				return n
			}
			first := begin("orchestrators/Greet/a")
			other := begin("orchestrators/Greet/b")
			if n := refused(first); n != 0 {
				t.Errorf("%d requests with the code of an instance are refused", n)
			}
			cross := strings.Replace(other.StatusQueryGetURI, "/b?", "/a?", 1)
			if status, _ := request(t, "GET", cross); status != http.StatusUnauthorized {
				t.Errorf("with the code of another instance: %d, want 401", status)
			}
			start := &history.ExecutionStarted{
				Header: history.NewHeader(time.Now()), Name: "Greet", Instance: history.OrchestrationInstance{InstanceID: "a", ExecutionID: "later"},
			}
			if err := hub.StartInstance(t.Context(), provider.TaskMessage{Event: start, Target: start.Instance}, nil); err != nil {
				t.Fatal(err)
			}
			if n := refused(first); n != 7 {
				t.Errorf("%d of 7 requests with the code of an earlier instance are refused", n)
			}
			if status, _ := request(t, "DELETE", first.PurgeHistoryDeleteURI); status != http.StatusUnauthorized {
				t.Errorf("a purge with the code of an earlier instance: %d, want 401", status)
			}
			if n := refused(other); n != 0 {
				t.Errorf("%d requests with the code of the other instance are refused", n)
			}
			if status, _ := request(t, "GET", first.StatusQueryGetURI, "x-functions-key", theKey); status != http.StatusAccepted {
				t.Errorf("with an old code and the key: %d, want 202", status)
			}
		})
	}
}

// Codes of earlier versions contain no time, and the start time of instances from other programs is not
// known.
func TestAccess_ACodeIsValidIfATimeIsUnknown(t *testing.T) {
	t.Parallel()
	a := management.Access{Key: theKey}
	dated, undated := a.Code("i", fakeTime), base64.RawURLEncoding.EncodeToString(a.Mac("i", nil))
	for _, tt := range []struct {
		code   string
		first  time.Time
		served bool
	}{
		{dated, time.Time{}, true},
		{dated, fakeTime, true},
		{dated, fakeTime.Add(100 * time.Nanosecond), false},
		{undated, time.Time{}, true},
		{undated, fakeTime, false},
		{dated[:len(dated)-1], time.Time{}, false},
		{undated + dated, time.Time{}, false},
		{a.Code("i", fakeTime.Add(time.Hour))[:12] + dated[12:], fakeTime, false},
		{"", time.Time{}, false},
	} {
		hub := newFullHub()
		hub.put("i", history.Running, func(s *provider.InstanceState) { s.FirstCreatedAt = tt.first })
		cfg := fakeConfig(t, hub)
		cfg.Key = theKey
		s := readyServer(t, App{}, cfg)
		for method, path := range map[string]string{"GET": "instances/i", "POST": "instances/i/suspend"} {
			if w := call(s, method, managed+path+"?code="+tt.code, ""); (w.Code == http.StatusAccepted) != tt.served {
				t.Errorf("%s with code %q of an instance of %v: %d", path, tt.code, tt.first, w.Code)
			}
		}
	}
}

// A request with the key does not read the instance for authorization. A status request with a code
// reads it once.
func TestAccess_ACodeCostsOneReadAtMost(t *testing.T) {
	t.Parallel()
	hub := &countedHub{fullHub: newFullHub()}
	cfg := fakeConfig(t, hub)
	cfg.Key = theKey
	s := readyServer(t, App{}, cfg)
	code := s.api.Access.Code("running", time.Now())
	for _, tt := range []struct {
		method, path string
		key, code    int64 // reads of the instance
	}{
		{"GET", "instances/running", 1, 1},
		{"GET", "instances/running?showInput=false", 1, 1},
		{"POST", "instances/running/raiseEvent/E", 1, 2},
		{"POST", "instances/running/terminate", 1, 2},
	} {
		for with, want := range map[string]int64{theKey: tt.key, code: tt.code} {
			before, separator := hub.reads.Load(), "?"
			if strings.Contains(tt.path, "?") {
				separator = "&"
			}
			body := ""
			if tt.method == "POST" {
				body = "1"
			}
			if w := call(s, tt.method, managed+tt.path+separator+"code="+with, body); w.Code != http.StatusAccepted {
				t.Errorf("%s: %d %s", tt.path, w.Code, w.Body)
			}
			if n := hub.reads.Load() - before; n != want {
				t.Errorf("%s (with the key: %v) reads the instance %d times, want %d", tt.path, with == theKey, n, want)
			}
		}
	}
}

type countedHub struct {
	*fullHub
	reads atomic.Int64
}

func (h *countedHub) Instance(ctx context.Context, id string, fetch provider.Fetch) (*provider.InstanceState, error) {
	h.reads.Add(1)
	return h.fullHub.Instance(ctx, id, fetch)
}

// request sends a request and returns the answer. headers are alternating names and values.
func request(t *testing.T, method, url string, headers ...string) (status int, body []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader("1"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err = io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, body
}
