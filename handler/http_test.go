package handler

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
	"github.com/labstack/echo/v4"
)

type durableClient = durable.Client

// failing is an app with routes that fail in different ways.
var failing = App{Routes: func(api *echo.Group, client *durable.Client) {
	api.GET("/panic", func(echo.Context) error { panic("kaboom") })
	api.GET("/panic-late", func(c echo.Context) error {
		if _, err := c.Response().Write([]byte("begun")); err != nil {
			return err
		}
		panic("kaboom")
	})
	api.GET("/error", func(echo.Context) error { return errors.New("secret") })
	api.GET("/http-error", func(echo.Context) error { return echo.NewHTTPError(http.StatusTeapot, "no coffee") })
	api.GET("/missing", func(c echo.Context) error {
		_, err := client.Status(c.Request().Context(), "nobody", durable.Fetch{})
		return fmt.Errorf("look: %w", err)
	})
	api.POST("/start", func(c echo.Context) error {
		_, err := client.StartByName(c.Request().Context(), "Greet", nil, durable.InstanceID("busy"))
		return err
	})
	api.POST("/long", func(c echo.Context) error {
		_, err := client.StartByName(c.Request().Context(), strings.Repeat("x", durable.MaxNameLength+1), nil)
		return err
	})
	api.POST("/bytes", func(c echo.Context) error {
		return client.RaiseEvent(c.Request().Context(), "busy", "\xff", nil)
	})
	api.POST("/bind", func(c echo.Context) error {
		var v struct{ N int }
		return c.Bind(&v)
	})
	api.GET("/fine", func(c echo.Context) error { return c.String(http.StatusOK, web.RequestID(c)) })
}}

func TestRoutes_ErrorsAndPanicsGetTheMatchingAnswer(t *testing.T) {
	t.Parallel()
	hub := newFakeHub()
	hub.put("busy", history.Running, nil)
	cfg, log := loggedConfig(t, hub)
	s := readyServer(t, failing, cfg)
	const head = "\nContent-Type: application/json; charset=utf-8\n"
	const internal = "500" + head + `{"Message":"Something went wrong while processing your request"}`
	for _, tt := range []struct{ request, body, want string }{
		{"GET /api/panic", "", internal},
		{"GET /api/error", "", internal},
		{"GET /api/http-error", "", "418" + head + `{"Message":"no coffee"}`},
		{"GET /api/missing", "", "404"},
		{"POST /api/start", "", "409" + head + `{"Message":"An Orchestration instance with the status Running already exists."}`},
		{"POST /api/long", "", "400" + head + `{"Message":"The name of an orchestrator must not exceed 1024 bytes; it has 1025."}`},
		{"POST /api/bytes", "", "400" + head + `{"Message":"EventRaised.Name is not valid UTF-8; encode it, for instance as Base64"}`},
		{"POST /api/fine", "", "404" + head + `{"Message":"Not Found"}`}, // like the host
		{"GET /api/nowhere", "", "404" + head + `{"Message":"Not Found"}`},
		{"GET /nowhere", "", "404" + head + `{"Message":"Not Found"}`},
	} {
		method, target, _ := strings.Cut(tt.request, " ")
		compare(t, tt.request, answerText(s, method, target, tt.body), tt.want)
	}
	if w := call(s, "POST", "/api/bind", "{"); w.Code != http.StatusBadRequest {
		t.Errorf("a body that does not bind: %d %s", w.Code, w.Body)
	}
	if w := call(s, "GET", "/api/panic-late", ""); w.Body.String() != "begun" {
		t.Errorf("a late panic: %q", w.Body)
	}
	if n := log.count(`msg="panic in a route" method=GET path=/api/panic`); n != 2 {
		t.Errorf("%d panics were logged in one line each, want 2:\n%s", n, log.text.String())
	}
	if n := log.count("request failed"); n != 1 {
		t.Errorf("%d errors were logged besides, want 1:\n%s", n, log.text.String())
	}
	if log.count("http_test.go") < 2 || log.count("error=secret") != 1 {
		t.Errorf("the log lacks the stack or the error:\n%s", log.text.String())
	}
}

func TestRequestID_IsTheCallersOrTheInvocations(t *testing.T) {
	t.Parallel()
	s := readyServer(t, failing, fakeConfig(t, newFakeHub()))
	for _, tt := range []struct {
		headers []string
		want    string
	}{
		{[]string{"X-Request-ID", "mine", web.HeaderInvocationID, "the-hosts"}, "mine"},
		{[]string{web.HeaderInvocationID, "the-hosts"}, "the-hosts"},
		{[]string{"X-Request-ID", strings.Repeat("x", 129), web.HeaderInvocationID, "the-hosts"}, "the-hosts"},
	} {
		w := call(s, "GET", "/api/fine", "", tt.headers...)
		if got := w.Header().Get("X-Request-ID"); got != tt.want || w.Body.String() != tt.want {
			t.Errorf("%v: ID is %q, %q, want %q", tt.headers, got, w.Body, tt.want)
		}
	}
	if got := call(s, "GET", "/api/fine", "").Body.String(); len(got) != 36 {
		t.Errorf("ID is %q, want a new one", got)
	}
}

func TestRoutes_BodyHasALimit(t *testing.T) {
	t.Parallel()
	s := readyServer(t, App{}, fakeConfig(t, newFakeHub()))
	r := httptest.NewRequest("POST", "/api/durabletask/orchestrators/Greet", &endless{})
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	if w.Code != http.StatusRequestEntityTooLarge || w.Body.String() != `{"Message":"The request body must not exceed 104857600 bytes."}` {
		t.Errorf("%d %.200s", w.Code, w.Body)
	}
}

// endless is a body without an end.
type endless struct{}

func (*endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func TestServer_WithoutARoutePrefixServesTheRoot(t *testing.T) {
	t.Parallel()
	cfg := fakeConfig(t, newFakeHub())
	cfg.RoutePrefix = ""
	s := readyServer(t, failing, cfg)
	for target, want := range map[string]int{"/fine": 200, "/durabletask/instances": 200, "/": 200, "/api/fine": 404, "/nowhere": 404} {
		if w := call(s, "GET", target, ""); w.Code != want {
			t.Errorf("%s: %d %s, want %d", target, w.Code, w.Body, want)
		}
	}
	if w := call(s, "GET", "/", ""); w.Body.String() != `{"status":"ready"}` {
		t.Errorf("/ says %s", w.Body)
	}
	if w := call(s, "HEAD", "/", ""); w.Code != 200 || w.Body.Len() > 0 {
		t.Errorf("HEAD /: %d %s", w.Code, w.Body)
	}
}
