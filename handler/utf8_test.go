package handler

import (
	"net/http"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
)

// Sends invalid UTF-8 to each route, in each place of the path, in each parameter and in the body. An
// instance with U+FFFD in the same place must not be used instead.
func TestRoutes_RefuseInvalidUTF8(t *testing.T) {
	t.Parallel()
	const bad = "%FF"
	values := map[string]string{"functionName": "Greet", "instanceId": "i", "eventName": "E", "entityName": "counter", "entityKey": "k"}
	fill := func(path, except, with string) string {
		for name, value := range values {
			if name == except {
				value = with
			}
			path = strings.ReplaceAll(path, "{"+name+"}", value)
		}
		return managed + path
	}
	for _, route := range management.Routes() {
		refused := func(target, body string, headers ...string) {
			t.Helper()
			hub := &fullHub{fakeHub: newFakeHub()}
			for _, id := range []string{"i", "\ufffd"} {
				hub.put(id, history.Running, nil)
			}
			s := readyServer(t, App{}, fakeConfig(t, hub))
			if w := call(s, route.Method, target, body, headers...); w.Code != http.StatusBadRequest {
				t.Errorf("%s %s with %q: %d %s, want 400", route.Method, target, body, w.Code, w.Body)
			}
			if len(hub.sent) > 0 || len(hub.instances) != 2 {
				t.Errorf("%s %s with %q: sent %v", route.Method, target, body, hub.sent)
			}
		}
		for name := range values {
			if strings.Contains(route.Path, "{"+name+"}") {
				refused(fill(route.Path, name, bad), "")
			}
		}
		for _, parameter := range append([]string{"taskHub", "x"}, route.Query...) {
			refused(fill(route.Path, "", "")+"?"+parameter+"=a"+bad, "")
		}
		if route.Body != "" {
			refused(fill(route.Path, "", ""), "\"a\xff\"")
			if strings.HasPrefix(route.Path, "entities") {
				refused(fill(route.Path, "", ""), "a\xff", "Content-Type", "text/plain")
			}
		}
	}
}

// Other programs may have stored invalid UTF-8 in a hub.
func TestList_IsValidJSONForAnyStoredText(t *testing.T) {
	t.Parallel()
	hub := newFakeHub()
	hub.put("i", history.Running, func(i *provider.InstanceState) {
		i.Input, i.Output, i.CustomStatus = new("\"\xff\""), new("\xff"), new("[\"\xff\"]")
	})
	w := call(readyServer(t, App{}, fakeConfig(t, hub)), "GET", managed+"instances", "")
	want := `"input":"\"\ufffd\"","customStatus":"[\"\ufffd\"]","output":"\ufffd"`
	if !strings.Contains(w.Body.String(), want) {
		t.Errorf("%s does not contain %s", w.Body, want)
	}
}
