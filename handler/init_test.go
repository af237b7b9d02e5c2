package handler

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/triggers"
)

// The handler accepts the settings of new apps.
func TestInit_WritesSettingsThatTheAppAccepts(t *testing.T) {
	t.Parallel()
	for storage, want := range map[string]StorageType{"embedded": Embedded, "azurestorage": Embedded, "partitionlog": Embedded} { // without a connection
		for _, host := range []string{"functions", "container"} {
			root := filepath.Join(t.TempDir(), "My Shop 2")
			if err := initCommand(App{}, []string{"--storage", storage, "--host", host, root}, &bytes.Buffer{}); err != nil {
				t.Fatal(err)
			}
			found, err := readHostJSON(root)
			if err != nil {
				t.Fatal(err)
			}
			cfg := configure(settings.Environment{}, found, nil)
			if cfg.Problem != nil || cfg.Storage.TaskHub != "HubMyShop2" || cfg.StorageType != want {
				t.Errorf("%s, %s: the configuration is %+v", storage, host, cfg)
			}
		}
	}
}

func TestInit_RequiresTheVersionThatTheProgramHas(t *testing.T) {
	t.Parallel()
	dep := func(m debug.Module) *debug.BuildInfo {
		m.Path = thisModule
		return &debug.BuildInfo{Deps: []*debug.Module{{Path: "other", Version: "v9.0.0", Sum: "h1:x"}, &m}}
	}
	program := func(version, sum string) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Path: thisModule, Version: version, Sum: sum}}
	}
	for want, build := range map[string][]*debug.BuildInfo{
		"v0.1.0": {dep(debug.Module{Version: "v0.1.0", Sum: "h1:x"}), program("v0.1.0", "h1:x")},
		"": {
			dep(debug.Module{Version: "v0.0.0", Replace: &debug.Module{Path: "../x"}}),
			{},
			program("(devel)", ""), program("v0.1.1-0.20261127000000-0123456789ab", ""), // built in a checkout
		},
	} {
		for _, b := range build {
			if got := libraryVersion(b, true); got != want {
				t.Errorf("%v: version %q, want %q", b, got, want)
			}
		}
	}
}

func TestDeploy_RefusesAHubInALocalFile(t *testing.T) {
	root := filepath.Join(t.TempDir(), "shop")
	if err := initCommand(App{}, []string{"--storage", "embedded", root}, &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	t.Chdir(root)
	if err := deployCommand(App{}, []string{"group", "shop"}, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "storageProvider.type") {
		t.Errorf("deploy: %v", err)
	}
	if err := deployCommand(App{}, []string{"group"}, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "resource group") {
		t.Errorf("deploy without a name: %v", err)
	}
	if err := packageCommand(App{}, []string{"x"}, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "unexpected arguments") {
		t.Errorf("package with an argument: %v", err)
	}
}

func TestDeploy_SaysHowAContainerIsDeployed(t *testing.T) {
	root := filepath.Join(t.TempDir(), "shop")
	if err := initCommand(App{}, []string{"--host", "container", root}, &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	t.Chdir(root)
	for name, command := range map[string]func() error{
		"package": func() error { return packageCommand(App{}, nil, &bytes.Buffer{}) },
		"deploy":  func() error { return deployCommand(App{}, []string{"group", "shop"}, &bytes.Buffer{}) },
	} {
		if err := command(); err == nil || !strings.Contains(err.Error(), "use docker build") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Neither the shell nor local.settings.json redirects the verification from the deployed app to another task hub.
func TestDeploy_VerifiesTheHubOfTheDeployedApp(t *testing.T) {
	const azurite = "UseDevelopmentStorage=true"
	for name, tt := range map[string]struct {
		local string
		shell []string
	}{
		"a connection in the file":           {local: `{"Values": {"AzureWebJobsStorage": "` + azurite + `"}}`},
		"the file in another case":           {local: `{"Values": {"AZUREWEBJOBSSTORAGE": "` + azurite + `", "AZUREFUNCTIONSJOBHOST__extensions__durableTask__hubName": "Local"}}`},
		"a connection string in the file":    {local: `{"ConnectionStrings": {"AzureWebJobsStorage": "` + azurite + `"}}`},
		"the file has identities":            {local: `{"Values": {"AzureWebJobsStorage__blobServiceUri": "http://127.0.0.1:1/a", "AzureWebJobsStorage__credential": "none"}}`},
		"the file has a hub and a site":      {local: `{"Values": {"AzureFunctionsJobHost__extensions__durableTask__hubName": "Local", "WEBSITE_SITE_NAME": "local"}}`},
		"a connection in the shell":          {shell: []string{"AzureWebJobsStorage=" + azurite}},
		"connection strings in the shell":    {shell: []string{"ConnectionStrings:AzureWebJobsStorage=" + azurite, "ConnectionStrings__AzureWebJobsStorage=" + azurite}},
		"a custom connection in the shell":   {shell: []string{"CUSTOMCONNSTR_AzureWebJobsStorage=" + azurite}},
		"identities in the shell":            {shell: []string{"AzureWebJobsStorage__blobServiceUri=http://127.0.0.1:1/a", "AzureWebJobsStorage__credential=none"}},
		"a hub and another app in a shell":   {shell: []string{"azurefunctionsjobhost:extensions:durableTask:hubName=Shell", "AzureWebJobsScriptRoot=/", "FUNCTIONS_APP_ROOT_PATH=/"}},
		"a slot and a local file in a shell": {shell: []string{"WEBSITE_SLOT_NAME=staging", "AzureFunctionsJobHost__extensions__durableTask__storageProvider__type=embedded"}},
	} {
		t.Run(name, func(t *testing.T) {
			root := hostRoot(t, `{}`)
			if tt.local != "" {
				if err := os.WriteFile(filepath.Join(root, settings.LocalSettingsFile), []byte(tt.local), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			t.Chdir(root)
			useEnvironment(t, append(os.Environ(), tt.shell...))
			cmd, err := verification(t.Context(), []string{"AzureWebJobsStorage__accountName=stshop", "WEBSITE_SITE_NAME=shop"})
			if err != nil {
				t.Fatal(err)
			}
			useEnvironment(t, cmd.Env)
			cfg, err := Load()
			if err = errors.Join(err, cfg.Problem); err != nil || cfg.StorageType != AzureStorage || cfg.Storage.TaskHub != "shop" {
				t.Fatalf("the hub is %q in %v: %v", cfg.Storage.TaskHub, cfg.StorageType, err)
			}
			blobs, err := cfg.Connection.BlobClients(nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if at := blobs.Bounded.URL(); at != "https://stshop.blob.core.windows.net" {
				t.Errorf("the account is %s", at)
			}
		})
	}
}

// useEnvironment replaces the environment of the process until the test ends.
func useEnvironment(t *testing.T, environ []string) {
	t.Helper()
	set := func(environ []string) {
		os.Clearenv()
		for _, variable := range environ {
			name, value, _ := strings.Cut(variable, "=")
			if name == "" { // the current folder of a drive of Windows
				continue
			}
			if err := os.Setenv(name, value); err != nil { //nolint:usetesting // replaces all variables
				t.Error(err)
			}
		}
	}
	before := os.Environ()
	t.Cleanup(func() { set(before) })
	set(environ)
}

func TestPackage_KeepsTheFunctionsOfTheRoutes(t *testing.T) {
	for _, tt := range []struct {
		written, args []string
		perRoute      bool
	}{
		{[]string{"-per-route"}, nil, true},
		{nil, []string{"-per-route"}, true},
		{nil, nil, false},
	} {
		root := hostRoot(t, `{"customHandler": {"description": {"defaultExecutablePath": "bin/app"}}}`)
		if _, err := runWrite(t, starter, append(tt.written, root)...); err != nil {
			t.Fatal(err)
		}
		t.Chdir(root)
		if err := packageCommand(starter, tt.args, io.Discard); err == nil || !strings.Contains(err.Error(), "go build") {
			t.Errorf("the folder has no package to build: %v", err)
		}
		for _, function := range []string{"http-orders", "durabletask"} {
			if _, err := os.Stat(filepath.Join(root, function, triggers.FileName)); (err == nil) != tt.perRoute {
				t.Errorf("%q, then package %q: function %s: %v", tt.written, tt.args, function, err)
			}
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
		{"-h", "-init [--name NAME]"},
		{"help", "hub VERB"},
		{"--version", thisModule},
		{"-version", "go1."},
		{"-init --help", "write a new app"},
		{"-init --help", "azurestorage (queues and tables), partitionlog, or embedded (a local file); default: azurestorage"},
		{"--init --name shop -h", "default: the name of FOLDER"},
		{"--schema", "\"$schema\""},
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
	if code, done := runCommand(App{}, []string{"-init", "-x"}, &out, &errs); !done || code != exitFailed || !strings.Contains(errs.String(), "usage: -init") {
		t.Errorf("an unknown flag: %d %v %s", code, done, &errs)
	}
	t.Setenv("FUNCTIONS_CUSTOMHANDLER_PORT", "1234")
	if _, done := runCommand(App{}, []string{"--of-the-app"}, &out, &errs); done {
		t.Error("behind the host an argument of the app's own ends it")
	}
}
