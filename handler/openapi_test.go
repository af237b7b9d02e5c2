package handler

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
)

// Each exchange of the transcripts uses a documented route and has a documented status and body. Each
// documented status occurs in an exchange.
func TestOpenAPI_DocumentsAllAnswers(t *testing.T) {
	t.Parallel()
	server := readyServer(t, App{}, fakeConfig(t, newFullHub()))
	w := call(server, "GET", managed+"openapi.json", "")
	var document map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &document); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d %v", w.Code, err)
	}
	if diff := describedRoutes(document, server.api.Routes); len(diff) > 0 {
		t.Errorf("routes: %s", strings.Join(diff, "\n"))
	}
	for _, ref := range refs(document) {
		if resolve(document, ref) == nil {
			t.Errorf("the document refers to %s, which it does not have", ref)
		}
	}
	seen := map[string]bool{"GET openapi.json 200": true}
	for _, exchanges := range transcripts() {
		for _, x := range exchanges {
			got, _ := x.send(t)
			route := got.route(t)
			if route == nil {
				continue
			}
			seen[fmt.Sprintf("%s %s %d", route.Method, route.Path, got.status)] = true
			for _, wrong := range undocumented(document, route, got) {
				t.Errorf("%s %s: %s", x.method, x.target, wrong)
			}
		}
	}
	for _, route := range server.api.Routes {
		for _, a := range route.Answers {
			if what := fmt.Sprintf("%s %s %d", route.Method, route.Path, a.Status); !seen[what] {
				t.Errorf("%s is documented, but no transcript shows it", what)
			}
		}
	}
}

// describedRoutes returns the differences between the routes in the document and routes.
func describedRoutes(document map[string]any, routes []management.Route) (wrong []string) {
	var want, got []string
	for _, r := range routes {
		want = append(want, strings.ToLower(r.Method)+" /"+r.Path)
	}
	for path, operations := range document["paths"].(map[string]any) {
		for method := range operations.(map[string]any) {
			got = append(got, method+" "+path)
		}
	}
	for _, path := range want {
		if !slices.Contains(got, path) {
			wrong = append(wrong, path+" is not documented")
		}
	}
	for _, path := range got {
		if !slices.Contains(want, path) {
			wrong = append(wrong, path+" does not exist")
		}
	}
	return wrong
}

// undocumented returns the differences between an answer and the document.
func undocumented(document map[string]any, route *management.Route, got answered) (wrong []string) {
	operation := lookup[map[string]any](document, "paths", "/"+route.Path, strings.ToLower(route.Method))
	answer, ok := lookup[map[string]any](operation, "responses")[strconv.Itoa(got.status)].(map[string]any)
	if !ok {
		return []string{fmt.Sprintf("status %d is not documented", got.status)}
	}
	if ref, ok := answer["$ref"].(string); ok {
		answer = resolve(document, ref)
	}
	content, ok := answer["content"].(map[string]any)
	if !ok {
		if len(got.answer) > 0 {
			wrong = append(wrong, fmt.Sprintf("status %d is documented without a body, has %s", got.status, got.answer))
		}
		return wrong
	}
	var value any
	if err := json.Unmarshal(got.answer, &value); err != nil {
		return []string{fmt.Sprintf("status %d: %v", got.status, err)}
	}
	for _, problem := range violations(document, lookup[map[string]any](content, "application/json", "schema"), value, "body") {
		wrong = append(wrong, fmt.Sprintf("status %d: %s", got.status, problem))
	}
	for name := range headersOf(answer) {
		if _, ok := got.header[http.CanonicalHeaderKey(name)]; !ok && name != management.HeaderUnreadable { // set only if something is unreadable
			wrong = append(wrong, fmt.Sprintf("status %d lacks the header %s", got.status, name))
		}
	}
	return wrong
}

func headersOf(answer map[string]any) map[string]any {
	headers, _ := answer["headers"].(map[string]any)
	return headers
}

// The schema of host.json accepts the repository's file and finds mistakes.
func TestSchema_AcceptsTheSampleAndFindsMistakes(t *testing.T) {
	t.Parallel()
	text, err := settings.HostSchema(settingRows())
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	check := func(file []byte) []string {
		var value any
		if err := json.Unmarshal(settings.PlainJSON(file), &value); err != nil {
			t.Fatal(err)
		}
		return violations(schema, schema, value, "host.json")
	}
	if wrong := check(readFile(t, "../"+settings.HostJSONFile)); len(wrong) > 0 {
		t.Errorf("the sample: %q", wrong)
	}
	for _, bad := range []string{
		`{}`, durableTaskJSON(`"hubbName": "x"`), durableTaskJSON(`"hubName": "my-hub"`), durableTaskJSON(`"maxConcurrentActivityFunctions": 0`),
		durableTaskJSON(`"storageProvider": {"partitionCount": 65}`), durableTaskJSON(`"storageProvider": {"maxQueuePollingInterval": "30 s"}`),
		durableTaskJSON(`"versionMatchStrategy": "Newest"`), durableTaskJSON(`"extendedSessionsEnabled": "yes"`),
		durableTaskJSON(`"notifications": {"eventGrid": {"publishEventTypes": ["Begun"]}}`), `{"version": "1.0"}`,
	} {
		if wrong := check([]byte(bad)); len(wrong) == 0 {
			t.Errorf("%s: no mistake was found", bad)
		}
	}
	if wrong := check([]byte(durableTaskJSON(`"hubName": "%HUB%", "notifications": {"eventGrid": {"publishEventTypes": ["Failed"]}}`))); len(wrong) > 0 {
		t.Errorf("good values: %q", wrong)
	}
}
