// Package newapp writes a new app: the files of its folder, from the templates in files.
package newapp

import (
	"embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"text/template"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
)

// Library is the module that a new app imports.
const Library = "github.com/durablefunctions-go/durablefunctions"

// The values of --storage and --host.
const (
	Embedded     = "embedded"
	AzureStorage = "azurestorage"
	PartitionLog = "partitionlog"

	Functions = "functions"
	Container = "container"
)

// An app has the values that the templates of a new app use.
type app struct {
	Name    string // of the app, its resources and its image: letters, digits and hyphens
	Module  string // the path of its Go module
	Hub     string // the name of its task hub
	Storage string
	Host    string
	Replace string // a folder with the library, empty for a published version
	Version string // of the library
	Go      string // language version, such as 1.26
}

func (a app) Library() string    { return Library }
func (a app) Embedded() bool     { return a.Storage == Embedded }
func (a app) PartitionLog() bool { return a.Storage == PartitionLog }
func (a app) Functions() bool    { return a.Host == Functions }
func (a app) Container() bool    { return a.Host == Container }

// Deployable reports whether the app's CI workflow may deploy it: a Functions plan does not keep local files.
func (a app) Deployable() bool { return !(a.Functions() && a.Embedded()) }

// StorageType is the value of the setting storageProvider.type.
func (a app) StorageType() string {
	return map[string]string{Embedded: "embedded", AzureStorage: "AzureStorage", PartitionLog: "partitionLog"}[a.Storage]
}

// Workload is the kind of the app's Kubernetes object.
func (a app) Workload() string {
	if a.Embedded() {
		return "statefulset"
	}
	return "deployment"
}

// A file is a file of a new app. The user edits the files with user set. The other files are the same in each
// app except for names.
type file struct {
	name, template string
	user           bool
	when           func(app) bool // reports whether an app has the file; nil means always
}

var files = []file{
	{"main.go", "main.go.tmpl", true, nil},
	{"main_test.go", "main_test.go.tmpl", true, nil},
	{"testdata/histories/place-order.json", "place-order.json", true, nil},
	{"go.mod", "go.mod.tmpl", true, nil},
	{"README.md", "README.md", true, nil},
	{settings.HostJSONFile, "host.json", true, nil},
	{settings.LocalSettingsFile, "local.settings.json", true, nil},
	{".gitignore", "gitignore", false, nil},
	{".github/workflows/ci.yml", "ci.yml", false, nil},
	{"functions/function.json", "function.json", false, app.Functions},
	{".funcignore", "funcignore", false, app.Functions},
	{"infra/main.bicep", "main.bicep", false, func(a app) bool { return a.Functions() && a.Deployable() }},
	{"Dockerfile", "Dockerfile", false, app.Container},
	{".dockerignore", "dockerignore", false, app.Container},
	{"deploy/kubernetes.yaml", "kubernetes.yaml", false, app.Container},
	{"deploy/podmonitor.yaml", "podmonitor.yaml", false, app.Container},
}

//go:embed files
var templates embed.FS

// render returns the text of a template in files.
func (a app) render(name string) ([]byte, error) {
	t, err := template.New(name).Delims("[[", "]]").Option("missingkey=error").ParseFS(templates, "files/"+name)
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	err = t.ExecuteTemplate(&text, name, a)
	return []byte(text.String()), err
}

// rendered returns the contents of the app's files, by file name.
func (a app) rendered() (map[string][]byte, error) {
	texts := map[string][]byte{}
	for _, f := range files {
		if f.when != nil && !f.when(a) {
			continue
		}
		text, err := a.render(f.template)
		if err != nil {
			return nil, fmt.Errorf("file %s of a new app: %w", f.name, err)
		}
		texts[f.name] = text
	}
	return texts, nil
}

// Usage describes the arguments of [Run].
const Usage = "[--name NAME] [--module PATH] [--storage embedded|azurestorage|partitionlog] [--host functions|container] [--replace DIR] [FOLDER]"

// Flags describes the flags in [Usage].
const Flags = `  --name NAME
        name of the app, its task hub and its Azure resources; default: the name of FOLDER
  --module PATH
        path of the Go module; default: the name
  --storage STORAGE
        azurestorage (queues and tables), partitionlog, or embedded (a local file); default: azurestorage
  --host HOST
        functions (zip file, Bicep template) or container (image, Kubernetes manifest); default: functions
  --replace DIR
        a folder with this library; default: a clone above the working directory, if the program was built from one
  FOLDER
        an empty folder, or one with an app; default: the working directory
`

// Run writes a new app into a folder, by default the working directory. If an app is there already, it writes
// nothing and shows how the files of a new app differ. Version is the library's version in this program, empty if the
// program was built from a checkout.
func Run(args []string, version string, out io.Writer) error {
	a, root, err := parse(args, version)
	if err != nil {
		return fmt.Errorf("-init: %w", err)
	}
	names, err := entries(root)
	if err != nil {
		return err
	}
	switch {
	case slices.Contains(names, "go.mod") && slices.Contains(names, settings.HostJSONFile):
		return compare(a, root, out)
	case len(names) > 0:
		return fmt.Errorf("-init needs an empty folder or one with an app, and %s has %s", root, names[0])
	}
	if err := a.findLibrary(root); err != nil {
		return fmt.Errorf("-init: %w", err)
	}
	if err := a.write(root); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, nextSteps, root, a.Name)
	return err
}

const nextSteps = `%s has the new app %s. To run it and its tests, in that folder:

  go mod tidy
  go run .
  go test ./...

README.md says how to use, test and deploy it.
`

// parse returns the app that the arguments describe, and its folder.
func parse(args []string, version string) (app, string, error) {
	a := app{Version: version, Go: goVersion()}
	flags := flag.NewFlagSet("-init", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&a.Name, "name", "", "")
	flags.StringVar(&a.Module, "module", "", "")
	flags.StringVar(&a.Storage, "storage", AzureStorage, "")
	flags.StringVar(&a.Host, "host", Functions, "")
	flags.StringVar(&a.Replace, "replace", "", "")
	if err := flags.Parse(args); err != nil {
		return a, "", fmt.Errorf("%w; usage: -init %s", err, Usage)
	}
	if flags.NArg() > 1 {
		return a, "", fmt.Errorf("it takes one folder after its flags, has %q", flags.Args())
	}
	root, err := filepath.Abs(flags.Arg(0))
	if err != nil {
		return a, "", err
	}
	if a.Name == "" {
		a.Name = nameOf(filepath.Base(root))
	} else if nameOf(a.Name) != a.Name {
		return a, "", fmt.Errorf("--name %q: want lower-case letters, digits and hyphens, with a letter first, such as %s", a.Name, nameOf(a.Name))
	}
	if a.Module == "" {
		a.Module = a.Name
	}
	if !slices.Contains([]string{Embedded, AzureStorage, PartitionLog}, a.Storage) {
		return a, "", fmt.Errorf("--storage %q: want %s, %s or %s", a.Storage, Embedded, AzureStorage, PartitionLog)
	}
	if a.Host != Functions && a.Host != Container {
		return a, "", fmt.Errorf("--host %q: want %s or %s", a.Host, Functions, Container)
	}
	a.Hub = hubOf(a.Name)
	return a, root, nil
}

// findLibrary sets the library's version, or the folder that replaces it.
func (a *app) findLibrary(root string) error {
	if a.Replace == "" && a.Version == "" {
		a.Replace = checkoutAbove(".")
	}
	if a.Version == "" {
		a.Version = "v0.0.0"
	}
	if a.Replace == "" {
		if a.Version == "v0.0.0" {
			return fmt.Errorf("this program was not built from a published version of %s: name a folder that has it, with --replace DIR", Library)
		}
		return nil
	}
	folder, err := filepath.Abs(a.Replace)
	if err != nil {
		return err
	}
	if checkoutAbove(folder) != folder {
		return fmt.Errorf("--replace %s: the folder has no go.mod of the module %s", a.Replace, Library)
	}
	if rel, err := filepath.Rel(root, folder); err == nil {
		folder = rel
	}
	a.Replace = filepath.ToSlash(folder)
	return nil
}

// checkoutAbove returns the folder of the library's module in or above a folder, empty without one.
func checkoutAbove(folder string) string {
	folder, err := filepath.Abs(folder)
	for err == nil {
		text, readErr := os.ReadFile(filepath.Join(folder, "go.mod"))
		if readErr == nil && strings.HasPrefix(string(text), "module "+Library+"\n") {
			return folder
		}
		if filepath.Dir(folder) == folder {
			break
		}
		folder = filepath.Dir(folder)
	}
	return ""
}

// entries creates a folder, unless it exists, and returns the names in it except .git.
func entries(root string) (names []string, err error) {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, err
	}
	all, err := os.ReadDir(root)
	for _, entry := range all {
		if entry.Name() != ".git" {
			names = append(names, entry.Name())
		}
	}
	return names, err
}

// write writes all files of the app.
func (a app) write(root string) error {
	texts, err := a.rendered()
	if err != nil {
		return err
	}
	for name, text := range texts {
		mode := os.FileMode(0o644)
		if name == settings.LocalSettingsFile {
			mode = 0o600 // users put keys there
		}
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, text, mode)); err != nil {
			return err
		}
	}
	return nil
}

var notInName = regexp.MustCompile(`[^a-z0-9-]+`)

// nameOf derives the name of an app from the name of its folder.
func nameOf(folder string) string {
	name := strings.Trim(notInName.ReplaceAllString(strings.ToLower(folder), "-"), "-")
	if name == "" || name[0] < 'a' {
		name = strings.TrimSuffix("app-"+name, "-")
	}
	return name
}

// hubOf derives the name of a task hub from the name of its app.
func hubOf(name string) string {
	hub := "Hub"
	for word := range strings.SplitSeq(name, "-") {
		if word != "" {
			hub += strings.ToUpper(word[:1]) + word[1:]
		}
	}
	return hub[:min(len(hub), 40)]
}

// goVersion returns the language version of the Go that built this program, such as 1.26.
func goVersion() string {
	version := strings.TrimPrefix(runtime.Version(), "go")
	if parts := strings.Split(version, "."); len(parts) >= 2 && !strings.ContainsAny(parts[0]+parts[1], " -") {
		return parts[0] + "." + parts[1]
	}
	return "1.26"
}
