package triggers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
)

// FileName is the name of the file that makes a folder a function.
const FileName = "function.json"

// generatedBy marks a function.json that this package has written and may change or remove. The host
// ignores the mark.
const generatedBy = "handler -write-functions"

// Write writes the function.json of each function below root, if it is missing or different. root
// contains a host.json. Write removes files that it wrote for other functions, adds the extension
// bundle to host.json if a binding needs it, and reports its changes to out.
func Write(root string, functions []*Function, out io.Writer) error {
	host, err := os.ReadFile(filepath.Join(root, settings.HostJSONFile))
	if err != nil {
		return err
	}
	w := writer{root: root, out: out}
	for _, f := range functions {
		if err := w.write(f); err != nil {
			return err
		}
	}
	if err := w.removeOthers(functions); err != nil {
		return err
	}
	for _, f := range functions {
		if kind := f.bundled(); kind != "" {
			return w.addBundle(host, f.Name, kind)
		}
	}
	return w.removeBundle(host)
}

// A writer writes files below root and reports changes to out.
type writer struct {
	root string
	out  io.Writer
}

func (w writer) tell(format string, args ...any) {
	_, _ = fmt.Fprintf(w.out, format+"\n", args...)
}

// write writes the file of a function unless it is up to date.
func (w writer) write(f *Function) error {
	text, err := f.json()
	if err != nil {
		return err
	}
	path := filepath.Join(w.root, f.Name, FileName)
	old, err := os.ReadFile(path)
	switch {
	case err == nil && bytes.Equal(old, text):
		return nil
	case err == nil && !isGenerated(old):
		return fmt.Errorf("%s was not written by -write-functions: remove it, or give function %q another name", path, f.Name)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return err
	}
	w.tell("wrote %s", path)
	return nil
}

// removeOthers removes generated files of functions that are not in functions.
func (w writer) removeOthers(functions []*Function) error {
	entries, err := os.ReadDir(w.root)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		path := filepath.Join(w.root, entry.Name(), FileName)
		if !entry.IsDir() || slices.ContainsFunc(functions, func(f *Function) bool { return f.Name == entry.Name() }) {
			continue
		}
		if !IsGenerated(filepath.Dir(path)) {
			continue
		}
		if err := os.Remove(path); err != nil {
			return err
		}
		_ = os.Remove(filepath.Dir(path)) // succeeds only if the folder is empty
		w.tell("removed %s", path)
	}
	return nil
}

// IsGenerated reports whether folder has a function.json that [Write] has written.
func IsGenerated(folder string) bool {
	old, err := os.ReadFile(filepath.Join(folder, FileName))
	return err == nil && isGenerated(old)
}

func isGenerated(functionJSON []byte) bool {
	var file struct {
		GeneratedBy string `json:"generatedBy"`
	}
	return json.Unmarshal(settings.PlainJSON(functionJSON), &file) == nil && file.GeneratedBy == generatedBy
}

// Bundle is the member of host.json that makes the host load extensions.
const Bundle = `
  "extensionBundle": {
    "id": "Microsoft.Azure.Functions.ExtensionBundle",
    "version": "[4.*, 5.0.0)"
  },`

// addBundle adds the extension bundle to host.json, unless it has one.
func (w writer) addBundle(host []byte, function, kind string) error {
	found, err := settings.ParseHostJSON(host)
	if err != nil {
		return err
	}
	if _, has := found.Lookup("extensionBundle"); has {
		return nil
	}
	mark := len(host) - len(bytes.TrimPrefix(host, []byte("\xef\xbb\xbf")))
	brace := mark + bytes.IndexByte(settings.PlainJSON(host), '{') + 1
	added := slices.Concat(host[:brace], []byte(Bundle), host[brace:])
	if _, err := settings.ParseHostJSON(added); err != nil {
		return fmt.Errorf("add the extension bundle: %w: add it by hand, as\n%s", err, Bundle)
	}
	if err := w.writeHost(added); err != nil {
		return err
	}
	w.tell("added the extension bundle to host.json: function %s has a %s, which the host loads from there", function, kind)
	return nil
}

// removeBundle removes an extension bundle that addBundle added to host.json.
func (w writer) removeBundle(host []byte) error {
	before, after, found := bytes.Cut(host, []byte(Bundle))
	if !found {
		return nil
	}
	if err := w.writeHost(slices.Concat(before, after)); err != nil {
		return err
	}
	w.tell("removed the extension bundle from host.json: no function needs it")
	return nil
}

func (w writer) writeHost(text []byte) error {
	return os.WriteFile(filepath.Join(w.root, settings.HostJSONFile), text, 0o644)
}

// RouteFunctions returns an HTTP function for each path, with the path's methods. Each function has its
// own keys in the portal and its own line in the output of `func start`.
func RouteFunctions(methods map[string][]string) ([]*Function, error) {
	var functions []*Function
	seen := map[string]string{}
	for _, path := range slices.Sorted(maps.Keys(methods)) {
		route, err := HostRoute(path)
		if err != nil {
			return nil, err
		}
		f := HTTPFunction(routeName(path), route, "function", methods[path])
		if other, taken := seen[strings.ToLower(f.Name)]; taken {
			return nil, fmt.Errorf("the routes %q and %q would both be function %s: without -per-route one function serves all of them", other, path, f.Name)
		}
		seen[strings.ToLower(f.Name)] = path
		functions = append(functions, f)
	}
	return functions, nil
}

// HTTPFunction returns an HTTP function whose requests the host forwards. Callers need its key unless
// authLevel is "anonymous".
func HTTPFunction(name, route, authLevel string, methods []string) *Function {
	slices.Sort(methods)
	return &Function{
		Name: name,
		Source: Binding{Kind: "httpTrigger", Name: "req", Properties: Properties{
			"authLevel": authLevel, "methods": slices.Compact(methods), "route": route,
		}},
		Bindings: []Binding{{Kind: "http", Name: "res", Out: true}},
	}
}

// HostRoute converts an echo path to the route syntax of the host.
func HostRoute(path string) (string, error) {
	var out []string
	for segment := range strings.SplitSeq(path, "/") {
		switch {
		case strings.HasPrefix(segment, ":"):
			segment = "{" + segment[1:] + "}"
		case segment == "*":
			segment = "{*path}"
		case strings.ContainsAny(segment, ":*{}"):
			return "", fmt.Errorf("the route %q has the segment %q, which the host does not support: without -per-route one function serves all routes", path, segment)
		}
		out = append(out, segment)
	}
	route := strings.Join(out, "/")
	for _, reserved := range []string{"admin", "runtime"} { // azure-functions-host: Host/ScriptHost.cs
		if strings.HasPrefix(strings.ToLower(route), reserved) {
			return "", fmt.Errorf("the route %q starts with %q, which the host reserves", path, reserved)
		}
	}
	return route, nil
}

var notInName = regexp.MustCompile(`[^A-Za-z0-9]+`)

// routeName returns the name of the function for a path: "orders/:id" becomes http-orders-id. The host
// tries functions in order of their names. The name of a route that ends in * therefore sorts last
// among those with the same prefix.
func routeName(path string) string {
	name := "http-" + strings.Trim(notInName.ReplaceAllString(path, "-"), "-")
	if strings.HasSuffix(path, "*") {
		name = strings.TrimSuffix(name, "-") + "-zz"
	}
	return strings.TrimSuffix(name, "-")
}
