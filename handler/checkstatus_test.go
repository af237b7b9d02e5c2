package handler

import (
	"crypto/tls"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
	"github.com/labstack/echo/v4"
)

// starter is an app with a route that starts an instance.
var starter = App{Routes: func(api *echo.Group, _ *durable.Client) {
	api.Any("/orders", func(c echo.Context) error { return CheckStatus(c, "a b/é") })
}}

func TestCheckStatus_URLsHaveTheCallersOrigin(t *testing.T) {
	t.Parallel()
	const local = "127.0.0.1:41000"
	for _, tt := range []struct {
		name       string
		standalone bool
		headers    []string
		want       string
	}{
		{"standalone", true, []string{"Host", "127.0.0.1:8080"}, "http://127.0.0.1:8080"},
		{"standalone believes no header", true, []string{"Host", "box:9", "X-Forwarded-Host", "evil", "X-Forwarded-Proto", "https"}, "http://box:9"},
		{"proxied by Core Tools", false, []string{"Host", local, "X-Forwarded-Host", "localhost:7071", "X-Forwarded-Proto", "http"}, "http://localhost:7071"},
		{"proxied on Azure", false, []string{"Host", local, "X-Forwarded-Host", "app.azurewebsites.net", "X-Forwarded-Proto", "https"}, "https://app.azurewebsites.net"},
		{"several proxies", false, []string{"Host", local, "X-Forwarded-Host", "www.shop.com, app.azurewebsites.net", "X-Forwarded-Proto", "HTTPS,http"}, "https://www.shop.com"},
		{"proxied, no scheme", false, []string{"Host", local, "X-Forwarded-Host", "app.azurewebsites.net"}, "https://app.azurewebsites.net"},
		{"proxied, nonsense", false, []string{"Host", local, "X-Forwarded-Host", "a b\"/<", "X-Forwarded-Proto", "gopher"}, "https://site.azurewebsites.net"},
		{"forwarded by Core Tools", false, []string{"Host", "localhost:7071"}, "http://localhost:7071"},
		{"forwarded to an address", false, []string{"Host", "192.168.1.7:7071"}, "http://192.168.1.7:7071"},
		{"forwarded, IPv6", false, []string{"Host", "[::1]:7071"}, "http://[::1]:7071"},
		{"forwarded on Azure", false, []string{"Host", "app.azurewebsites.net"}, "https://app.azurewebsites.net"},
		{"forwarded, scheme known", false, []string{"Host", "app.internal", "X-Forwarded-Proto", "http"}, "http://app.internal"},
		{"nothing but our own address", false, []string{"Host", local}, "https://site.azurewebsites.net"},
	} {
		cfg := fakeConfig(t, newFakeHub())
		cfg.BehindHost, cfg.Address, cfg.SiteHostname = !tt.standalone, local, "site.azurewebsites.net"
		w := call(readyServer(t, starter, cfg), "POST", "/api/orders", "", tt.headers...)
		want := tt.want + "/api/durabletask/instances/a%20b%2F%C3%A9?taskHub=MyHub&connection=Storage"
		if got := w.Header().Get("Location"); got != want || w.Code != http.StatusAccepted {
			t.Errorf("%s: %d, Location is %s, want %s", tt.name, w.Code, got, want)
		}
		if !strings.Contains(w.Body.String(), `"statusQueryGetUri":"`+want+`"`) {
			t.Errorf("%s: body is %s", tt.name, w.Body)
		}
	}
}

func TestCheckStatus_URLsHaveTheCallersPathAndKey(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		prefix, target string
		headers        []string
		want           string
	}{
		{"api", "/api/orders", nil, "/api/durabletask/instances/a%20b%2F%C3%A9?taskHub=MyHub&connection=My+Store"},
		{"", "/orders", nil, "/durabletask/instances/a%20b%2F%C3%A9?taskHub=MyHub&connection=My+Store"},
		{"v1/x", "/v1/x/orders", nil, "/v1/x/durabletask/instances/a%20b%2F%C3%A9?taskHub=MyHub&connection=My+Store"},
		{"api", "/api/orders?a=1&CODE=ab%2B%3D%3D", nil, "/api/durabletask/instances/a%20b%2F%C3%A9?taskHub=MyHub&connection=My+Store&code=ab%2B%3D%3D"},
		{"api", "/api/orders", []string{"x-functions-key", "k=="}, "/api/durabletask/instances/a%20b%2F%C3%A9?taskHub=MyHub&connection=My+Store&code=k%3D%3D"},
	} {
		cfg := fakeConfig(t, newFakeHub())
		cfg.RoutePrefix, cfg.ConnectionName = tt.prefix, "My Store"
		w := call(readyServer(t, starter, cfg), "POST", tt.target, "", tt.headers...)
		if got := strings.TrimPrefix(w.Header().Get("Location"), "http://localhost:8080"); got != tt.want {
			t.Errorf("%s: Location is %s, want %s", tt.target, got, tt.want)
		}
	}
	// A request to the extension's path gets URLs with that path.
	s := readyServer(t, App{}, fakeConfig(t, newFakeHub()))
	w := call(s, "POST", "/runtime/webhooks/DURABLETASK/orchestrators/Greet/i", "")
	if got, want := w.Header().Get("Location"), "http://localhost:8080/runtime/webhooks/durabletask/instances/i?taskHub=MyHub&connection=Storage"; got != want {
		t.Errorf("Location is %s, want %s", got, want)
	}
}

func TestCheckStatus_AllReturnedURLsWork(t *testing.T) {
	t.Parallel()
	hub := newFullHub()
	s := readyServer(t, App{}, fakeConfig(t, hub))
	id := "it's (50%) +&= ü@home~"
	call(s, "POST", "/api/durabletask/orchestrators/Greet/x", "")
	hub.instances[id] = hub.instances["x"]
	w := httptest.NewRecorder()
	c := s.echo.NewContext(httptest.NewRequest("GET", "http://localhost:8080/api/x", nil), w)
	if err := s.api.LinksFor(func(c echo.Context) error { return nil })(c); err != nil {
		t.Fatal(err)
	}
	payload := management.LinksOf(c).CheckStatus(durable.InstanceID(id))
	for _, request := range []struct{ method, url, body string }{
		{"GET", payload.StatusQueryGetURI, ""},
		{"POST", strings.Replace(payload.SendEventPostURI, "{eventName}", "E", 1), "1"},
		{"POST", strings.Replace(payload.TerminatePostURI, "{text}", "done", 1), ""},
	} {
		target := strings.TrimPrefix(request.url, "http://localhost:8080")
		if got := call(s, request.method, target, request.body); got.Code != http.StatusAccepted {
			t.Errorf("%s %s: %d %s", request.method, request.url, got.Code, got.Body)
		}
	}
	for _, sent := range hub.messages() {
		if sent.Target.InstanceID != id {
			t.Errorf("sent to %q, want %q", sent.Target.InstanceID, id)
		}
	}
	if n := len(hub.messages()); n != 2 {
		t.Errorf("%d messages, want 2", n)
	}
	for _, request := range []struct {
		method, url string
		status      history.RuntimeStatus
		want        int
	}{
		{"POST", payload.SuspendPostURI, history.Running, http.StatusAccepted},
		{"POST", payload.ResumePostURI, history.Suspended, http.StatusAccepted},
		{"POST", payload.RewindPostURI, history.Failed, http.StatusAccepted},
		{"POST", payload.RestartPostURI, history.Completed, http.StatusAccepted},
		{"DELETE", payload.PurgeHistoryDeleteURI, history.Completed, http.StatusOK},
	} {
		hub.put(id, request.status, nil)
		target := strings.TrimPrefix(strings.Replace(request.url, "{text}", "why", 1), "http://localhost:8080")
		if got := call(s, request.method, target, ""); got.Code != request.want {
			t.Errorf("%s %s: %d %s", request.method, request.url, got.Code, got.Body)
		}
	}
	if sent := hub.messages(); len(sent) != 4 || sent[3].Target.InstanceID != id || len(hub.rewound) != 1 || hub.rewound[0] != id+": why" || hub.instances[id] != nil {
		t.Errorf("%d messages, rewound %q, the instance is %+v", len(sent), hub.rewound, hub.instances[id])
	}
}

// httpSettings.useForwardedHost (HttpApiHandler.cs, GetBaseUrl) is for an app behind its own proxy.
func TestCheckStatus_StandaloneTrustsAConfiguredProxy(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		headers []string
		want    string
	}{
		{"behind a proxy", []string{"Host", "box:9", "X-Forwarded-Host", "shop.example", "X-Forwarded-Proto", "https"}, "https://shop.example"},
		{"a proxy that tells the scheme only", []string{"Host", "shop.example", "X-Forwarded-Proto", "https"}, "https://shop.example"},
		{"nothing forwarded", []string{"Host", "127.0.0.1:8080"}, "http://127.0.0.1:8080"},
	} {
		cfg := fakeConfig(t, newFakeHub())
		cfg.UseForwardedHost = true
		w := call(readyServer(t, starter, cfg), "POST", "/api/orders", "", tt.headers...)
		if got := w.Header().Get("Location"); !strings.HasPrefix(got, tt.want+"/api/durabletask/") {
			t.Errorf("%s: Location is %s, want one at %s", tt.name, got, tt.want)
		}
	}
}

func TestCheckStatus_OutsideOfAServerIsAnError(t *testing.T) {
	t.Parallel()
	c := echo.New().NewContext(httptest.NewRequest("GET", "/", nil), httptest.NewRecorder())
	if err := CheckStatus(c, "i"); err == nil {
		t.Error("no error")
	}
}

func TestOrigin_StandaloneKnowsTLS(t *testing.T) {
	t.Parallel()
	s := readyServer(t, App{}, fakeConfig(t, newFakeHub()))
	r := httptest.NewRequest("GET", "/", nil)
	r.Host, r.TLS = "host:1", &tls.ConnectionState{}
	if got := s.front.Origin(r); got != "https://host:1" {
		t.Errorf("origin is %s, want https://host:1", got)
	}
}

func TestManagement_ReturnsTheURLsThatCheckStatusWrites(t *testing.T) {
	t.Parallel()
	app := App{Routes: func(api *echo.Group, _ *durable.Client) {
		starter.Routes(api, nil)
		api.Any("/links", func(c echo.Context) error {
			urls, err := Management(c, "a b/é")
			if err != nil {
				return err
			}
			return c.JSON(http.StatusOK, urls)
		})
	}}
	cfg := fakeConfig(t, newFakeHub())
	s := readyServer(t, app, cfg)
	var got, want ManagementPayload
	for target, payload := range map[string]*ManagementPayload{"/api/links": &got, "/api/orders": &want} {
		if err := json.Unmarshal(call(s, "POST", target, "").Body.Bytes(), payload); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(got.StatusQueryGetURI, "/api/durabletask/instances/a%20b%2F%C3%A9") || got != want {
		t.Errorf("the URLs are %+v, want %+v", got, want)
	}
	c := echo.New().NewContext(httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder())
	if urls, err := Management(c, "i"); err == nil {
		t.Errorf("outside a server, the URLs are %+v", urls)
	}
}
