package triggers

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// RouteFunctions returns an HTTP function for each path, with its methods. Each
// function has keys of its own in the portal and a line of its own in the output
// of `func start`.
func RouteFunctions(methods map[string][]string) ([]*Function, error) {
	var functions []*Function
	seen := map[string]string{}
	for _, path := range slices.Sorted(maps.Keys(methods)) {
		route, err := HostRoute(path)
		if err != nil {
			return nil, err
		}
		f := HTTPFunction(routeName(path), route, methods[path])
		if other, taken := seen[strings.ToLower(f.Name)]; taken {
			return nil, fmt.Errorf("the routes %q and %q would both be function %s: without -per-route one function takes all of them", other, path, f.Name)
		}
		seen[strings.ToLower(f.Name)] = path
		functions = append(functions, f)
	}
	return functions, nil
}

// HTTPFunction returns a function whose requests the host passes on.
func HTTPFunction(name, route string, methods []string) *Function {
	slices.Sort(methods)
	return &Function{
		Name: name,
		Source: Binding{Kind: "httpTrigger", Name: "req", Properties: Properties{
			"authLevel": "function", "methods": slices.Compact(methods), "route": route,
		}},
		Bindings: []Binding{{Kind: "http", Name: "res", Out: true}},
	}
}

// HostRoute returns an echo path in the syntax of the host's routes.
func HostRoute(path string) (string, error) {
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
