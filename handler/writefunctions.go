package handler

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/triggers"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
	"github.com/labstack/echo/v4"
)

// writeFunctionsCommand runs the command -write-functions.
func writeFunctionsCommand(app App, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("-write-functions", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	perRoute := flags.Bool("per-route", false, "")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("-write-functions: %w", err)
	}
	if flags.NArg() > 1 {
		return fmt.Errorf("-write-functions takes one folder; got %q", flags.Args())
	}
	root := flags.Arg(0)
	if root == "" {
		root = "."
	}
	return writeFunctions(app, root, *perRoute, out)
}

// writeFunctions writes the function.json of each function of the app below root.
func writeFunctions(app App, root string, perRoute bool, out io.Writer) error {
	host, err := os.ReadFile(filepath.Join(root, settings.HostJSONFile))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no host.json in %s: name the app's root folder", root)
	}
	if err != nil {
		return err
	}
	functions, err := functionsOf(app, host, perRoute)
	if err != nil {
		return err
	}
	return triggers.Write(root, functions, out)
}

// functionsOf returns all functions that the host must know.
func functionsOf(app App, hostJSON []byte, perRoute bool) ([]*triggers.Function, error) {
	functions := describe(app.Triggers)
	if err := triggers.Check(functions); err != nil {
		return nil, err
	}
	functions = append(functions, consoleFunction())
	if perRoute {
		routes, err := routeFunctions(app, hostJSON)
		if err != nil {
			return nil, err
		}
		functions = append(functions, routes...)
	}
	for i, f := range functions {
		for _, other := range functions[:i] {
			if strings.EqualFold(f.Name, other.Name) {
				return nil, fmt.Errorf("two functions would have the name %q: rename the one in App.Triggers", f.Name)
			}
		}
	}
	return functions, nil
}

// managementFunction is the name of the function for the management API, if each route has its own function.
const managementFunction = "durabletask"

// routeFunctions returns one function per route of the app, and one for the management API.
func routeFunctions(app App, hostJSON []byte) ([]*triggers.Function, error) {
	found, err := settings.ParseHostJSON(hostJSON)
	if err != nil {
		return nil, err
	}
	prefix := DefaultRoutePrefix
	if s, given := found.Lookup(routePrefixPath); given {
		prefix = strings.Trim(s.Text, "/")
	}
	routes, err := routesOf(app, prefix)
	if err != nil {
		return nil, err
	}
	functions, err := triggers.RouteFunctions(routes)
	if err != nil {
		return nil, err
	}
	management, err := triggers.HostRoute(strings.TrimPrefix(web.ManagementPath, "/") + "/*")
	if err != nil {
		return nil, err
	}
	return append(functions, triggers.HTTPFunction(managementFunction, management, "function", []string{"get", "post", "delete", "head"})), nil
}

// consoleFunction returns the function of the web console. It is anonymous, because a browser's cookie
// does not pass a function that requires a key. The app checks the cookie itself and serves no console
// without a key. The host matches functions in order of their names; "durable-console" precedes the
// functions for all routes, "durabletask" and "functions".
func consoleFunction() *triggers.Function {
	route := strings.TrimPrefix(web.ManagementPath+web.ConsolePath, "/") + "/{*path}"
	return triggers.HTTPFunction("durable-console", route, "anonymous", []string{"get", "post", "head"})
}

// routesOf returns the methods of each app route below the prefix, by path. It passes a client without
// a hub to the app: routes use the client only when they are called.
func routesOf(app App, prefix string) (methods map[string][]string, err error) {
	if app.Routes == nil {
		return nil, nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the app's routes cannot be added: %v", p)
		}
	}()
	e := echo.New()
	app.Routes(e.Group(web.GroupPath(prefix)), durable.NewClient(nil, durable.NewRegistry(app.Registrations...)))
	methods = map[string][]string{}
	for _, r := range e.Routes() {
		path, below := strings.CutPrefix(r.Path, web.GroupPath(prefix)+"/")
		if below && r.Method != echo.RouteNotFound && path != strings.TrimPrefix(web.ManagementPath, "/") {
			methods[path] = append(methods[path], strings.ToLower(r.Method))
		}
	}
	return methods, nil
}
