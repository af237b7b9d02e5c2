package handler

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
)

func runInit(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := initCommand(App{}, args, &out)
	return out.String(), err
}

func TestInit_WritesAnAppWithValidSettings(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "My Shop 2")
	says, err := runInit(t, root)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{root, "go mod tidy", "go build -o bin/app .", "func start", "/api/welcome/you", "bin/app -write-functions ."} {
		if !strings.Contains(says, want) {
			t.Errorf("it does not say %q:\n%s", want, says)
		}
	}
	for _, file := range starterFiles {
		text := fileText(t, root, filepath.FromSlash(file[0]))
		if strings.Contains(text, "{{") {
			t.Errorf("%s has a gap:\n%s", file[0], text)
		}
		if strings.HasSuffix(file[0], ".json") && !json.Valid(settings.PlainJSON([]byte(text))) {
			t.Errorf("%s is not valid JSON", file[0])
		}
	}
	if info, err := os.Stat(filepath.Join(root, settings.LocalSettingsFile)); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("%s may hold keys: %v %v, want mode 0600", settings.LocalSettingsFile, info.Mode(), err)
	}
	if text := fileText(t, root, "go.mod"); !strings.HasPrefix(text, "module my-shop-2\n") {
		t.Errorf("go.mod is\n%s", text)
	}
	if text := fileText(t, root, "main.go"); !strings.Contains(text, "Consumption plan") {
		t.Error("main.go does not say that the Consumption plan refuses the functionTimeout of host.json")
	}
	found, err := readHostJSON(root)
	if err != nil {
		t.Fatal(err)
	}
	cfg := configure(settings.Environment{}, found, nil)
	if cfg.Problem != nil || cfg.Storage.TaskHub != "HubMyShop2" || cfg.StorageType != Embedded || cfg.FunctionTimeout != -1 {
		t.Errorf("the configuration is %+v", cfg)
	}
}

func TestInit_ChangesNoExistingFile(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := runInit(t, root); err != nil {
		t.Errorf("a folder with .git only: %v", err)
	}
	if err := os.WriteFile(filepath.Join(root, "main.go"), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := runInit(t, root); err == nil || !strings.Contains(err.Error(), "-init needs an empty folder") {
		t.Errorf("again: %v", err)
	}
	if got := fileText(t, root, "main.go"); got != "mine" {
		t.Errorf("main.go is %s", got)
	}
	if _, err := runInit(t, "a", "b"); err == nil {
		t.Error("two folders are accepted")
	}
}

func TestInit_DerivesNamesFromFolders(t *testing.T) {
	t.Parallel()
	for folder, want := range map[string][2]string{
		"shop": {"shop", "HubShop"}, "My Shop": {"my-shop", "HubMyShop"}, "7up": {"app-7up", "HubApp7up"},
		"日本": {"app", "HubApp"}, strings.Repeat("x", 60): {strings.Repeat("x", 60), "HubX" + strings.Repeat("x", 36)},
	} {
		name := appName(folder)
		if hub := hubOf(name); name != want[0] || hub != want[1] {
			t.Errorf("%s: module %s, hub %s, want %v", folder, name, hub, want)
		}
	}
}

func TestCommands_AreDistinguished(t *testing.T) {
	var out, errs bytes.Buffer
	if _, done := runCommand(App{}, nil, &out, &errs); done {
		t.Error("no argument is a command")
	}
	if code, done := runCommand(App{}, []string{"-write-function"}, &out, &errs); !done || code != exitUsage || !strings.Contains(errs.String(), "-write-functions") {
		t.Errorf("a typing error: %d %v %s", code, done, &errs)
	}
	errs.Reset()
	if code, done := runCommand(App{}, []string{"-write-functions", t.TempDir()}, &out, &errs); !done || code != exitFailed || !strings.Contains(errs.String(), "no host.json") {
		t.Errorf("a command that fails: %d %v %s", code, done, &errs)
	}
	root := hostRoot(t, "{}")
	if code, done := runCommand(App{}, []string{"-write-functions", root}, &out, &errs); !done || code != exitOK {
		t.Errorf("a command: %d %v", code, done)
	}
	for _, tt := range []struct{ args, want string }{
		{"--help", "-write-functions [-per-route] [FOLDER]"},
		{"-h", "-init [FOLDER]"},
		{"help", "hub VERB"},
		{"--version", thisModule},
		{"-version", "go1."},
		{"-init --help", "write a new app"},
		{"-write-functions -h", "the folder of host.json"},
		{"-schema --help", "JSON schema"},
	} {
		out.Reset()
		t.Chdir(t.TempDir())
		if code, done := runCommand(App{}, strings.Fields(tt.args), &out, &errs); !done || code != exitOK || !strings.Contains(out.String(), tt.want) {
			t.Errorf("%s: %d %v %s", tt.args, code, done, &out)
		}
		if entries, err := os.ReadDir("."); err != nil || len(entries) > 0 {
			t.Errorf("%s wrote %v, %v", tt.args, entries, err)
		}
	}
	errs.Reset()
	if code, done := runCommand(App{}, []string{"-init", "-x"}, &out, &errs); !done || code != exitFailed || !strings.Contains(errs.String(), "./-x") {
		t.Errorf("a folder like an option: %d %v %s", code, done, &errs)
	}
	t.Setenv("FUNCTIONS_CUSTOMHANDLER_PORT", "1234")
	if _, done := runCommand(App{}, []string{"--of-the-app"}, &out, &errs); done {
		t.Error("behind the host an argument of the app's own ends it")
	}
}
