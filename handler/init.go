package handler

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/triggers"
)

//go:embed starter
var starterText embed.FS

// starterFiles pairs each file of a new app with the embedded file that it is made from.
var starterFiles = [][2]string{
	{"main.go", "main.go.txt"},
	{"go.mod", "go.mod.txt"},
	{settings.HostJSONFile, settings.HostJSONFile},
	{settings.LocalSettingsFile, settings.LocalSettingsFile},
	{"functions/" + triggers.FileName, triggers.FileName},
	{".funcignore", "funcignore.txt"},
	{".gitignore", "gitignore.txt"},
	{".github/workflows/ci.yml", "ci.yml"},
}

// initCommand runs the command -init.
func initCommand(_ App, args []string, out io.Writer) error {
	if len(args) > 1 {
		return fmt.Errorf("-init takes one folder; got %q", args)
	}
	root := "."
	if len(args) == 1 {
		root = args[0]
	}
	if strings.HasPrefix(root, "-") {
		return fmt.Errorf("-init takes a folder; got %q; write ./%s for a folder of that name", root, root)
	}
	return initApp(root, out)
}

// initApp creates a new app in root, a folder that is empty or does not exist.
func initApp(root string, out io.Writer) error {
	absolute, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Name() != ".git" {
			return fmt.Errorf("-init needs an empty folder; %s contains %s", absolute, entry.Name())
		}
	}
	name := appName(filepath.Base(absolute))
	fill := strings.NewReplacer("{{name}}", name, "{{hub}}", hubOf(name), "{{go}}", goVersion())
	for _, file := range starterFiles {
		text, err := starterText.ReadFile("starter/" + file[1])
		if err != nil {
			return err
		}
		path := filepath.Join(root, filepath.FromSlash(file[0]))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(fill.Replace(string(text))), starterMode(file[0]))); err != nil {
			return err
		}
	}
	program := "bin/app"
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	_, err = fmt.Fprintf(out, `%s is a durable app. To run it, in that folder:

  go mod tidy
  go build -o %s .
  func start          (or %s, without Azure Functions Core Tools)

Then, in another terminal (port 8080 without Core Tools):

  curl -i -X POST http://localhost:7071/api/welcome/you

When you add a trigger to the app, build it and write the trigger's function.json:

  %s -write-functions .
`, absolute, program, program, program)
	return err
}

// starterMode returns the permissions of a file of a new app. Only the owner may read
// local.settings.json, which holds keys.
func starterMode(name string) os.FileMode {
	if name == settings.LocalSettingsFile {
		return 0o600
	}
	return 0o644
}

var notInAppName = regexp.MustCompile(`[^a-z0-9-]+`)

// appName derives a module name from the name of a folder.
func appName(folder string) string {
	name := strings.Trim(notInAppName.ReplaceAllString(strings.ToLower(folder), "-"), "-")
	if name == "" || name[0] < 'a' {
		name = strings.TrimSuffix("app-"+name, "-")
	}
	return name
}

// hubOf derives the name of a task hub from the name of an app.
func hubOf(name string) string {
	hub := "Hub"
	for word := range strings.SplitSeq(name, "-") {
		if word != "" {
			hub += strings.ToUpper(word[:1]) + word[1:]
		}
	}
	return hub[:min(len(hub), 40)]
}

// goVersion returns the language version of the Go toolchain that built this program, such as "1.26".
func goVersion() string {
	version := strings.TrimPrefix(runtime.Version(), "go")
	if parts := strings.Split(version, "."); len(parts) >= 2 && !strings.ContainsAny(parts[0]+parts[1], " -") {
		return parts[0] + "." + parts[1]
	}
	return "1.26"
}
