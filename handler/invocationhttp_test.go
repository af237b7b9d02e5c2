package handler

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
	"github.com/google/go-cmp/cmp"
	"github.com/labstack/echo/v4"
)

// handlerAddress is the server's address in tests of invocations.
const handlerAddress = "127.0.0.1:8080"

// hosted returns a server behind the host.
func hosted(t *testing.T, app App) (*Server, *logBuffer) {
	t.Helper()
	cfg, log := loggedConfig(t, newFakeHub())
	cfg.BehindHost, cfg.Address = true, handlerAddress
	return readyServer(t, app, cfg), log
}

// newHosted is like hosted, for a fuzz test and without a log.
func newHosted(f *testing.F, app App) *Server {
	f.Helper()
	s := New(app, Config{RoutePrefix: "api", BehindHost: true, Address: handlerAddress, Provider: newFakeHub(), Logger: slog.New(slog.DiscardHandler)})
	if s.cfg.Problem != nil {
		f.Fatal(s.cfg.Problem)
	}
	s.state.SetReady()
	return s
}

// invoke sends an invocation like the host.
func invoke(s *Server, function, body string, headers ...string) (int, string) {
	w := call(s, http.MethodPost, "/"+function, body, append([]string{"Host", handlerAddress, web.HeaderInvocationID, "the-invocation"}, headers...)...)
	return w.Code, w.Body.String()
}

var mirror = App{Routes: func(api *echo.Group, _ *durableClient) {
	api.Any("/mirror/:id", func(c echo.Context) error {
		body, err := io.ReadAll(c.Request().Body)
		if err != nil {
			return err
		}
		c.Response().Header().Add("X-Two", "1")
		c.Response().Header().Add("X-Two", "2")
		return c.JSON(http.StatusAccepted, []string{c.Request().Method, c.Param("id"), c.QueryParam("q"), c.Request().Host, c.Request().Header.Get("X-Mine"), string(body)})
	})
	api.GET("/nothing", func(echo.Context) error { return nil })
	api.GET("/picture", func(c echo.Context) error { return c.Blob(http.StatusOK, "image/png", []byte{0xff, 0xfe}) })
}}

// The invocation of an HTTP function must have status 200 and a body. An empty answer never completes
// the invocation. An answer with another status loses its text (azure-functions-host:
// DefaultHttpWorkerService.cs).
func TestInvocation_OfAnHTTPFunctionIsAnsweredByTheRoutes(t *testing.T) {
	t.Parallel()
	s, log := hosted(t, mirror)
	for _, tt := range []struct {
		name, request string
		status        int
		body          string
	}{
		{
			"text", `{"Url":"http://localhost:7071/api/mirror/a%20b?q=1","Method":"POST","Headers":{"X-Mine":["yes"],"Content-Type":["text/plain"]},"Body":"{\"a\":1}"}`,
			202, `["POST","a b","1","localhost:7071","yes","{\"a\":1}"]` + "\n",
		},
		{
			"bytes", `{"Url":"http://localhost:7071/api/mirror/7","Method":"PUT","Headers":{"Content-Type":["application/octet-stream"]},"Body":"aGVsbG8="}`,
			202, `["PUT","7","","localhost:7071","","hello"]` + "\n",
		},
		{"no body", `{"Url":"http://localhost:7071/api/mirror/7","Method":"GET","Headers":{}}`, 202, `["GET","7","","localhost:7071","",""]` + "\n"},
		{"nothing", `{"Url":"http://localhost:7071/api/nothing","Method":"GET","Headers":{}}`, 200, ""},
		{"nowhere", `{"Url":"http://localhost:7071/api/nowhere","Method":"GET","Headers":{}}`, 404, `{"Message":"Not Found"}`},
		{"management", `{"Url":"http://localhost:7071/api/durabletask/instances","Method":"GET","Headers":{}}`, 200, `[]`},
		{
			"no text", `{"Url":"http://localhost:7071/api/picture","Method":"GET","Headers":{}}`, 501,
			`{"Message":"The answer is not text, and the host wraps answers in JSON. ` +
				`Set customHandler.enableProxyingHttpRequest, or on older hosts enableForwardingHttpRequest, to true in host.json."}`,
		},
	} {
		code, answer := invoke(s, "functions", `{"Data":{"req":`+tt.request+`},"Metadata":{"sys":{"MethodName":"functions"}}}`)
		var got struct {
			Outputs map[string]struct {
				StatusCode int               `json:"statusCode"`
				Headers    map[string]string `json:"headers"`
				Body       string            `json:"body"`
			}
		}
		if err := json.Unmarshal([]byte(answer), &got); err != nil || code != http.StatusOK {
			t.Fatalf("%s: %d %s: %v", tt.name, code, answer, err)
		}
		res := got.Outputs["res"]
		if res.StatusCode != tt.status || res.Body != tt.body {
			t.Errorf("%s: got %+v, want %d %s", tt.name, res, tt.status, tt.body)
		}
		if tt.name == "text" && res.Headers["X-Two"] != "1, 2" {
			t.Errorf("headers are %v", res.Headers)
		}
	}
	if n := log.count("the host wraps HTTP requests"); n != 1 {
		t.Errorf("the log mentions wrapping %d times, want once", n)
	}
}

func TestInvocation_OfAnotherTriggerFailsWithAReason(t *testing.T) {
	t.Parallel()
	s, _ := hosted(t, App{})
	timer := `{"Data":{"timer":{"Schedule":{"AdjustForDST":true},"IsPastDue":false}},"Metadata":{"sys":{"MethodName":"Tick"}}}`
	if code, body := invoke(s, "Tick", timer); code != http.StatusInternalServerError || !strings.Contains(body, `Function \"Tick\" has a trigger that this app does not serve`) {
		t.Errorf("%d %s", code, body)
	}
	for _, tt := range [][2]string{{"Tick", `{"Data":{}}`}, {"Tick", "{"}, {"Tick", "7"}, {"Tick", ""}, {"a/b", timer}, {"", timer}} {
		if code, body := invoke(s, tt[0], tt[1]); code != http.StatusNotFound {
			t.Errorf("%s %s: %d %s, want 404", tt[0], tt[1], code, body)
		}
	}
}

// A caller of an HTTP function, even without a route prefix, must not be able to start other functions
// with its own payload.
func TestInvocation_ByACallerIsDistinguishedOrTheAppDoesNotServe(t *testing.T) {
	t.Parallel()
	ran := 0
	triggers := App{Triggers: []Trigger{countingTrigger(&ran)}}
	for _, tt := range []struct {
		app      App
		hostJSON string
		handler  bool
		serves   bool
	}{
		{triggers, `{"customHandler": {"enableForwardingHttpRequest": true}, "extensions": {"http": {"routePrefix": ""}}}`, true, false},
		{triggers, `{"customHandler": {"enableForwardingHttpRequest": "true", "enableProxyingHttpRequest": true}, "extensions": {"http": {"routePrefix": "/"}}}`, true, false},
		{triggers, `{"customHandler": {"enableForwardingHttpRequest": true}}`, true, true},
		{triggers, `{"customHandler": {"enableProxyingHttpRequest": true}, "extensions": {"http": {"routePrefix": ""}}}`, true, true},
		{App{}, `{"customHandler": {"enableForwardingHttpRequest": true}, "extensions": {"http": {"routePrefix": ""}}}`, true, true},
		{triggers, `{"customHandler": {"enableForwardingHttpRequest": true}, "extensions": {"http": {"routePrefix": ""}}}`, false, true},
	} {
		found, err := settings.ParseHostJSON([]byte(tt.hostJSON))
		if err != nil {
			t.Fatal(err)
		}
		env := settings.Environment{}
		if tt.handler {
			env.HandlerPort = "8080"
		}
		cfg := configure(env, found, nil)
		cfg.Provider, cfg.Logger = newFakeHub(), quiet
		s := New(tt.app, cfg)
		if serves := s.cfg.Problem == nil; serves != tt.serves || !serves && !strings.Contains(s.cfg.Problem.Error(), "set a route prefix") {
			t.Errorf("%s with %d triggers, behind the host %v: %v, want it to serve: %v", tt.hostJSON, len(tt.app.Triggers), tt.handler, s.cfg.Problem, tt.serves)
		}
	}
}

func TestInvocation_IsAcceptedFromTheHostOnly(t *testing.T) {
	t.Parallel()
	ran := 0
	app := App{Triggers: []Trigger{countingTrigger(&ran)}}
	body := `{"Data":{"input":"\"x\""},"Metadata":{}}`
	cfg, _ := loggedConfig(t, newFakeHub())
	cfg.RoutePrefix, cfg.BehindHost, cfg.Address = "", true, handlerAddress
	s := readyServer(t, app, cfg)
	for _, headers := range [][]string{
		{"Host", "shop.example.com"},                                                        // forwarded
		{"Host", handlerAddress, "X-Forwarded-Host", "shop.example.com"},                    // proxied
		{"Host", handlerAddress, "X-Forwarded-For", "10.1.2.3"},                             // proxied
		{"Host", handlerAddress, "X-Original-Host", "shop.example.com", "Via", "1.1 proxy"}, // from a gateway
	} {
		if w := call(s, "POST", "/Count", body, headers...); w.Code != http.StatusNotFound {
			t.Errorf("%v: %d %s, want 404", headers, w.Code, w.Body)
		}
	}
	// A wrapped request has the Host header of its caller.
	wrapped := `{"Data":{"req":{"Url":"http://` + handlerAddress + `/Count","Method":"POST","Headers":{},"Body":` + strconv.Quote(body) + `}},"Metadata":{}}`
	if code, answer := invoke(s, "functions", wrapped); code != http.StatusOK || !strings.Contains(answer, `"statusCode":404`) {
		t.Errorf("wrapped: %d %s, want 404 in it", code, answer)
	}
	if ran != 0 {
		t.Fatalf("the function ran %d times", ran)
	}
	if code, body := invoke(s, "Count", body); code != http.StatusOK || ran != 1 {
		t.Errorf("the host's own: %d %s, ran %d times", code, body, ran)
	}
	cfg.BehindHost = false
	if code, _ := invoke(readyServer(t, app, cfg), "Count", body); code != http.StatusNotFound {
		t.Errorf("standalone: %d, want 404", code)
	}
	if diff := cmp.Diff(1, ran); diff != "" {
		t.Error(diff)
	}
}
