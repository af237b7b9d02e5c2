package handler

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"
)

// functionJSONFile is the file by which the host knows that a folder is a
// function.
const functionJSONFile = "function.json"

// generatedBy marks a function.json that this package wrote, and may change and
// remove. The host ignores the name.
const generatedBy = "handler -write-functions"

// A functionFile is the function.json of one function.
type functionFile struct {
	name     string // the function's, and its folder's
	bindings []binding
	retry    *retryPolicy
}

// functionFileOf returns the file of a function.
func functionFileOf(t Trigger) functionFile {
	return functionFile{t.name, append([]binding{t.source}, t.bindings...), t.retry}
}

// text returns what the file holds: the same for the same function, so that a
// file that is right can be left alone. Writing one makes the host start anew.
func (f functionFile) text() ([]byte, error) {
	var bindings []json.RawMessage
	for _, b := range f.bindings {
		text, err := b.text()
		if err != nil {
			return nil, fmt.Errorf("function %s: %w", f.name, err)
		}
		bindings = append(bindings, text)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(struct {
		GeneratedBy string            `json:"generatedBy"`
		Bindings    []json.RawMessage `json:"bindings"`
		Retry       *retryPolicy      `json:"retry,omitempty"`
	}{generatedBy, bindings, f.retry})
	return out.Bytes(), err
}

// text returns the binding as JSON: type, direction and name, then the others
// by their names.
func (b binding) text() (json.RawMessage, error) {
	direction := "in"
	if b.out {
		direction = "out"
	}
	var out bytes.Buffer
	member := func(name string, value any) error {
		text, err := marshalJSON(value)
		if err != nil {
			return fmt.Errorf("property %s of binding %s: %w", name, b.name, err)
		}
		separator := ","
		if out.Len() == 0 {
			separator = "{"
		}
		fmt.Fprintf(&out, "%s%s:%s", separator, quote(name), text)
		return nil
	}
	for _, m := range [][2]string{{"type", b.kind}, {"direction", direction}, {"name", b.name}} {
		if err := member(m[0], m[1]); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.properties)) {
		if err := member(name, b.properties[name]); err != nil {
			return nil, err
		}
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// routeFiles returns a function for each path that the app's routes have, and
// one for the management API, so that each has keys of its own in the portal
// and a line of its own in what `func start` prints.
func routeFiles(routes []*echo.Route, prefix string) ([]functionFile, error) {
	methods := map[string][]string{} // by path
	for _, r := range routes {
		path, below := strings.CutPrefix(r.Path, groupPath(prefix)+"/")
		if !below || r.Method == echo.RouteNotFound || path == strings.TrimPrefix(managementPath, "/") {
			continue
		}
		methods[path] = append(methods[path], strings.ToLower(r.Method))
	}
	var files []functionFile
	seen := map[string]string{}
	for _, path := range slices.Sorted(maps.Keys(methods)) {
		route, err := hostRoute(path)
		if err != nil {
			return nil, err
		}
		file := httpFunction(routeName(path), route, methods[path])
		if other, taken := seen[strings.ToLower(file.name)]; taken {
			return nil, fmt.Errorf("the routes %q and %q would both be function %s: without -per-route one function takes all of them", other, path, file.name)
		}
		seen[strings.ToLower(file.name)] = path
		files = append(files, file)
	}
	return files, nil
}

// httpFunction is a function whose requests the host passes on.
func httpFunction(name, route string, methods []string) functionFile {
	slices.Sort(methods)
	return functionFile{name: name, bindings: []binding{
		{kind: "httpTrigger", name: "req", properties: properties{
			"authLevel": "function", "methods": slices.Compact(methods), "route": route,
		}},
		{kind: "http", name: "res", out: true},
	}}
}

// hostRoute returns an echo path in the syntax of the host's routes.
func hostRoute(path string) (string, error) {
	var out []string
	for segment := range strings.SplitSeq(path, "/") {
		switch {
		case strings.HasPrefix(segment, ":"):
			segment = "{" + segment[1:] + "}"
		case segment == "*":
			segment = "{*path}"
		case strings.ContainsAny(segment, ":*{}"):
			return "", fmt.Errorf("the route %q has the segment %q, which the host has no form for: without -per-route one function takes all routes", path, segment)
		}
		out = append(out, segment)
	}
	route := strings.Join(out, "/")
	for _, reserved := range []string{"admin", "runtime"} { // azure-functions-host: Host/ScriptHost.cs
		if strings.HasPrefix(strings.ToLower(route), reserved) {
			return "", fmt.Errorf("the route %q begins with %q, which the host keeps for itself", path, reserved)
		}
	}
	return route, nil
}

var notInName = regexp.MustCompile(`[^A-Za-z0-9]+`)

// routeName returns the name of the function for a path: "orders/:id" becomes
// http-orders-id. Names of routes that end in * sort last among those that begin
// alike, since the host tries functions in order of their names.
func routeName(path string) string {
	name := "http-" + strings.Trim(notInName.ReplaceAllString(path, "-"), "-")
	if strings.HasSuffix(path, "*") {
		name = strings.TrimSuffix(name, "-") + "-zz"
	}
	return strings.TrimSuffix(name, "-")
}
