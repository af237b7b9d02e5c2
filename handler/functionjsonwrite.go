package handler

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
	"github.com/labstack/echo/v4"
)

// writeFunctionsCommand is -write-functions.
func writeFunctionsCommand(app App, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("-write-functions", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	perRoute := flags.Bool("per-route", false, "")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("-write-functions: %w", err)
	}
	if flags.NArg() > 1 {
		return fmt.Errorf("-write-functions takes one folder, has %q", flags.Args())
	}
	root := flags.Arg(0)
	if root == "" {
		root = "."
	}
	return writeFunctions(app, root, *perRoute, out)
}

// writeFunctions makes the functions below root, a folder with a host.json,
// those of app: it writes what is not there or not right, removes what it wrote
// before and the app no longer has, leaves everything else alone, and tells out
// what it did.
func writeFunctions(app App, root string, perRoute bool, out io.Writer) error {
	host, err := os.ReadFile(filepath.Join(root, settings.HostJSONFile))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no host.json in %s: name the app's root folder", root)
	}
	if err != nil {
		return err
	}
	files, err := functionFiles(app, host, perRoute)
	if err != nil {
		return err
	}
	w := functionWriter{root: root, out: out}
	for _, f := range files {
		if err := w.write(f); err != nil {
			return err
		}
	}
	if err := w.removeOthers(files); err != nil {
		return err
	}
	for _, t := range app.Triggers {
		if kind := t.needsBundle(); kind != "" {
			return w.addBundle(host, t.name, kind)
		}
	}
	return w.removeBundle(host)
}

// functionFiles returns the files that an app should have.
func functionFiles(app App, hostJSON []byte, perRoute bool) ([]functionFile, error) {
	if err := checkTriggers(app.Triggers); err != nil {
		return nil, err
	}
	var files []functionFile
	for _, t := range app.Triggers {
		files = append(files, functionFileOf(t))
	}
	if !perRoute {
		return files, nil
	}
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
	more, err := routeFiles(routes, prefix)
	if err != nil {
		return nil, err
	}
	management, err := hostRoute(strings.TrimPrefix(managementPath, "/") + "/*")
	if err != nil {
		return nil, err
	}
	files = append(files, more...)
	files = append(files, httpFunction("durabletask", management, lower("GET", "POST", "DELETE", "HEAD")))
	for i, f := range files {
		for _, other := range files[:i] {
			if strings.EqualFold(f.name, other.name) {
				return nil, fmt.Errorf("two functions would have the name %q: rename the one in App.Triggers", f.name)
			}
		}
	}
	return files, nil
}

func lower(names ...string) []string {
	for i := range names {
		names[i] = strings.ToLower(names[i])
	}
	return names
}

// routesOf returns the routes that an app adds. It is given a client of a hub
// that does not exist: routes only use one when they are called.
func routesOf(app App, prefix string) (routes []*echo.Route, err error) {
	if app.Routes == nil {
		return nil, nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the app's routes cannot be added: %v", p)
		}
	}()
	e := echo.New()
	app.Routes(e.Group(groupPath(prefix)), durable.NewClient(nil, durable.NewRegistry(app.Functions...)))
	return e.Routes(), nil
}

// A functionWriter writes below root and says so.
type functionWriter struct {
	root string
	out  io.Writer
}

func (w functionWriter) tell(format string, args ...any) {
	_, _ = fmt.Fprintf(w.out, format+"\n", args...)
}

// write writes a function's file unless it is right already.
func (w functionWriter) write(f functionFile) error {
	text, err := f.text()
	if err != nil {
		return err
	}
	path := filepath.Join(w.root, f.name, functionJSONFile)
	old, err := os.ReadFile(path)
	switch {
	case err == nil && bytes.Equal(old, text):
		return nil
	case err == nil && !isGenerated(old):
		return fmt.Errorf("%s was not written by -write-functions: remove it, or give function %q another name", path, f.name)
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

// removeOthers removes the functions that were written before and are none of
// files.
func (w functionWriter) removeOthers(files []functionFile) error {
	entries, err := os.ReadDir(w.root)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		path := filepath.Join(w.root, entry.Name(), functionJSONFile)
		if !entry.IsDir() || slices.ContainsFunc(files, func(f functionFile) bool { return f.name == entry.Name() }) {
			continue
		}
		old, err := os.ReadFile(path)
		if err != nil || !isGenerated(old) {
			continue // no function, or not ours
		}
		if err := os.Remove(path); err != nil {
			return err
		}
		_ = os.Remove(filepath.Dir(path)) // if nothing else is in it
		w.tell("removed %s", path)
	}
	return nil
}

func isGenerated(functionJSON []byte) bool {
	var file struct {
		GeneratedBy string `json:"generatedBy"`
	}
	return json.Unmarshal(settings.PlainJSON(functionJSON), &file) == nil && file.GeneratedBy == generatedBy
}

// bundle is the member of host.json that lets the host load extensions.
const bundle = `
  "extensionBundle": {
    "id": "Microsoft.Azure.Functions.ExtensionBundle",
    "version": "[4.*, 5.0.0)"
  },`

// addBundle adds the extension bundle to host.json unless it has one, and leaves
// all else in it as it is.
func (w functionWriter) addBundle(host []byte, function, kind string) error {
	found, err := settings.ParseHostJSON(host)
	if err != nil {
		return err
	}
	if _, has := found.Lookup("extensionBundle"); has {
		return nil
	}
	mark := len(host) - len(bytes.TrimPrefix(host, []byte("\xef\xbb\xbf")))
	brace := mark + bytes.IndexByte(settings.PlainJSON(host), '{') + 1
	added := slices.Concat(host[:brace], []byte(bundle), host[brace:])
	if _, err := settings.ParseHostJSON(added); err != nil {
		return fmt.Errorf("add the extension bundle: %w: add it by hand, as\n%s", err, bundle)
	}
	if err := w.writeHost(added); err != nil {
		return err
	}
	w.tell("added the extension bundle to host.json: function %s has a %s, which the host loads from there", function, kind)
	return nil
}

// removeBundle takes the extension bundle out of host.json again, if it is as
// addBundle wrote it.
func (w functionWriter) removeBundle(host []byte) error {
	before, after, found := bytes.Cut(host, []byte(bundle))
	if !found {
		return nil
	}
	if err := w.writeHost(slices.Concat(before, after)); err != nil {
		return err
	}
	w.tell("removed the extension bundle from host.json: no function needs it")
	return nil
}

func (w functionWriter) writeHost(text []byte) error {
	return os.WriteFile(filepath.Join(w.root, settings.HostJSONFile), text, 0o644)
}
