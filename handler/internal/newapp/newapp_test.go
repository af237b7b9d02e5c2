package newapp

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
	"go.yaml.in/yaml/v3"
)

// checkout is the root of this module.
var checkout = filepath.Join("..", "..", "..")

func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := Run(args, "", &out)
	return out.String(), err
}

// written writes a new app and returns its folder.
func written(t *testing.T, args ...string) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "My Shop 2")
	if _, err := run(t, append(args, root)...); err != nil {
		t.Fatal(err)
	}
	return root
}

func text(t *testing.T, root, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// eachKind calls f with a new app for each storage and host.
func eachKind(t *testing.T, f func(t *testing.T, root, storage, host string)) {
	for _, storage := range []string{Embedded, AzureStorage, PartitionLog} {
		for _, host := range []string{Functions, Container} {
			t.Run(storage+" "+host, func(t *testing.T) {
				t.Parallel()
				f(t, written(t, "--storage", storage, "--host", host), storage, host)
			})
		}
	}
}

func TestRun_WritesTheFilesOfEachKindOfApp(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, root, storage, host string) {
		want := []string{
			".github/workflows/ci.yml", ".gitignore", "README.md", "go.mod", "host.json", "local.settings.json", "main.go", "main_test.go",
			"testdata/histories/place-order.json",
		}
		if host == Functions {
			want = append(want, ".funcignore", "functions/function.json")
		} else {
			want = append(want, ".dockerignore", "Dockerfile", "deploy/kubernetes.yaml", "deploy/podmonitor.yaml")
		}
		if host == Functions && storage != Embedded {
			want = append(want, "infra/main.bicep")
		}
		var got []string
		err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				rel, _ := filepath.Rel(root, path)
				got = append(got, filepath.ToSlash(rel))
			}
			return err
		})
		slices.Sort(got)
		slices.Sort(want)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("the app has %q, %v, want %q", got, err, want)
		}
		for _, name := range got {
			content := text(t, root, name)
			if strings.Contains(content, "[[") || strings.Contains(content, "<no value>") || !strings.HasSuffix(content, "\n") {
				t.Errorf("%s has a gap or no newline at its end:\n%s", name, content)
			}
			if ext := filepath.Ext(name); ext == ".yml" || ext == ".yaml" {
				for d := yaml.NewDecoder(strings.NewReader(content)); ; {
					var document map[string]any
					if err := d.Decode(&document); errors.Is(err, io.EOF) {
						break
					} else if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
				}
			}
			if strings.HasSuffix(name, ".json") && !json.Valid(settings.PlainJSON([]byte(content))) {
				t.Errorf("%s is not valid JSON", name)
			}
		}
		if info, err := os.Stat(filepath.Join(root, settings.LocalSettingsFile)); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
			t.Errorf("%s may hold keys: %v %v, want mode 0600", settings.LocalSettingsFile, info.Mode(), err)
		}
		workflow := text(t, root, ".github/workflows/ci.yml")
		if deploys := strings.Contains(workflow, "deploy:"); deploys != (host != Functions || storage != Embedded) {
			t.Errorf("the workflow deploys: %t", deploys)
		}
		for _, line := range strings.Split(workflow, "\n") {
			if _, ref, ok := strings.Cut(line, "uses: "); ok && len(strings.Split(ref, " ")[0]) < 40 {
				t.Errorf("the workflow pins no commit: %s", line)
			}
		}
	})
}

func TestRun_NamesModuleHubAndLibrary(t *testing.T) {
	t.Parallel()
	root := written(t)
	mod := text(t, root, "go.mod")
	rel, err := filepath.Rel(root, mustAbs(t, checkout))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"module my-shop-2\n", "require " + Library + " v0.0.0\n", "replace " + Library + " => " + filepath.ToSlash(rel) + "\n"} {
		if !strings.Contains(mod, want) {
			t.Errorf("go.mod lacks %q:\n%s", want, mod)
		}
	}
	if host := text(t, root, "host.json"); !strings.Contains(host, `"hubName": "HubMyShop2"`) {
		t.Errorf("host.json has another hub:\n%s", host)
	}
	root = written(t, "--name", "orders", "--module", "example.com/orders")
	if mod := text(t, root, "go.mod"); !strings.HasPrefix(mod, "module example.com/orders\n") {
		t.Errorf("go.mod is\n%s", mod)
	}
	var out bytes.Buffer
	root = filepath.Join(t.TempDir(), "shop")
	if err := Run([]string{root}, "v0.1.0", &out); err != nil {
		t.Fatal(err)
	}
	if mod := text(t, root, "go.mod"); !strings.Contains(mod, Library+" v0.1.0\n") || strings.Contains(mod, "replace") {
		t.Errorf("with a published version go.mod is\n%s", mod)
	}
}

func mustAbs(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}

func TestRun_RefusesWhatItCannotWrite(t *testing.T) {
	t.Parallel()
	occupied := t.TempDir()
	if err := os.WriteFile(filepath.Join(occupied, "notes.txt"), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"notes.txt":                     {occupied},
		"--name \"My Shop\"":            {"--name", "My Shop", t.TempDir()},
		"such as my-shop":               {"--name", "My Shop", t.TempDir()},
		"--storage \"redis\"":           {"--storage", "redis", t.TempDir()},
		"--host \"vm\"":                 {"--host", "vm", t.TempDir()},
		"has no go.mod of the module":   {"--replace", t.TempDir(), t.TempDir()},
		"one folder after its flags":    {"a", "b"},
		"flag provided but not defined": {"-x"},
	} {
		if _, err := run(t, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

// The library of an existing app does not matter: its program may be built with a replaced library.
func TestRun_ComparesAnAppWhoseLibraryIsNotPublished(t *testing.T) {
	root := written(t)
	t.Chdir(root) // outside a checkout
	if says, err := run(t, "."); err != nil || !strings.Contains(says, "they are the same") {
		t.Errorf("%v\n%s", err, says)
	}
	if _, err := run(t, t.TempDir()); err == nil || !strings.Contains(err.Error(), "--replace DIR") {
		t.Errorf("a new app without a library: %v", err)
	}
}

// A newer program shows the changes of files that it owns, and writes nothing.
func TestRun_ShowsHowAnExistingAppDiffers(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, root, storage, host string) {
		if says, err := run(t, root); err != nil || !strings.Contains(says, "they are the same") {
			t.Fatalf("unchanged: %v\n%s", err, says)
		}
		changed := filepath.Join(root, ".gitignore")
		old := strings.Replace(text(t, root, ".gitignore"), "/bin/\n", "/old/\n", 1)
		if err := os.WriteFile(changed, []byte(old), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "main.go"), []byte("package main\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(root, ".github", "workflows", "ci.yml")); err != nil {
			t.Fatal(err)
		}
		says, err := run(t, root)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{".gitignore differs", "\n-/old/\n+/bin/\n", ".github/workflows/ci.yml is new", "nothing was written"} {
			if !strings.Contains(says, want) {
				t.Errorf("it does not say %q:\n%s", want, says)
			}
		}
		if strings.Contains(says, "main.go") {
			t.Errorf("it compares a file that belongs to the user:\n%s", says)
		}
		if text(t, root, ".gitignore") != old {
			t.Error("the file was written")
		}
	})
}

// The name and storage of an app are in its files, so its user does not repeat the flags.
func TestRun_ComparesAnAppWithItsOwnNameAndStorage(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, _, storage, host string) {
		root := written(t, "--name", "orders", "--module", "example.com/orders", "--storage", storage, "--host", host)
		if says, err := run(t, root); err != nil || !strings.Contains(says, "they are the same") {
			t.Errorf("%v\n%s", err, says)
		}
	})
}

// A manifest is a document of deploy/kubernetes.yaml.
type manifest struct {
	Kind string
	Spec struct {
		Replicas        *int
		MinReplicaCount int   `yaml:"minReplicaCount"`
		Volumes         []any `yaml:"volumeClaimTemplates"`
		Template        struct {
			Spec struct {
				Grace    int `yaml:"terminationGracePeriodSeconds"`
				Security struct {
					NonRoot bool `yaml:"runAsNonRoot"`
				} `yaml:"securityContext"`
				Containers []struct {
					Ready probe `yaml:"readinessProbe"`
					Live  probe `yaml:"livenessProbe"`
				}
			}
		}
	}
}

type probe struct {
	Get struct{ Path string } `yaml:"httpGet"`
}

// manifests returns the documents of an app's manifest by kind.
func manifests(t *testing.T, root string) map[string]manifest {
	t.Helper()
	all := map[string]manifest{}
	for d := yaml.NewDecoder(strings.NewReader(text(t, root, "deploy/kubernetes.yaml"))); ; {
		var m manifest
		switch err := d.Decode(&m); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatal(err)
		}
		all[m.Kind] = m
	}
}

// A stopped replica has the time of a lease, so that it can release its partitions.
func TestRun_AContainerIsProbedScaledAndStopped(t *testing.T) {
	t.Parallel()
	for _, storage := range []string{Embedded, AzureStorage, PartitionLog} {
		root := written(t, "--storage", storage, "--host", Container)
		all := manifests(t, root)
		workload, isSet := all["StatefulSet"]
		scaled, isScaled := all["ScaledObject"]
		if !isSet {
			workload = all["Deployment"]
		}
		spec := workload.Spec.Template.Spec
		if len(spec.Containers) != 1 || spec.Containers[0].Ready.Get.Path != "/health/ready" || spec.Containers[0].Live.Get.Path != "/health/live" {
			t.Errorf("%s: the probes of %+v", storage, spec)
		}
		if spec.Grace <= int(azurestorage.DefaultLeaseInterval.Seconds()) || !spec.Security.NonRoot {
			t.Errorf("%s: %d s to stop, not root: %t", storage, spec.Grace, spec.Security.NonRoot)
		}
		if storage == Embedded {
			if !isSet || isScaled || workload.Spec.Replicas == nil || *workload.Spec.Replicas != 1 || len(workload.Spec.Volumes) != 1 {
				t.Errorf("a hub in a file: %+v, with KEDA: %t; want one replica with a disk", workload.Spec, isScaled)
			}
		} else if isSet || !isScaled || scaled.Spec.MinReplicaCount < 1 {
			t.Errorf("%s: with KEDA: %t, %+v; want at least one replica", storage, isScaled, scaled.Spec)
		}
		docker := text(t, root, "Dockerfile")
		for _, line := range []string{"FROM gcr.io/distroless/static-debian12:nonroot\n", "USER 65532:65532\n"} {
			if !strings.Contains(docker, line) {
				t.Errorf("%s: the Dockerfile lacks %q", storage, line)
			}
		}
	}
}

// Each file for a platform says what could not be tried.
func TestRun_FilesSayWhatWasNotTried(t *testing.T) {
	t.Parallel()
	for _, storage := range []string{AzureStorage, Embedded} {
		for host, names := range map[string][]string{
			Functions: {".github/workflows/ci.yml", "infra/main.bicep"},
			Container: {".github/workflows/ci.yml", "Dockerfile", "deploy/kubernetes.yaml", "deploy/podmonitor.yaml"},
		} {
			root := written(t, "--storage", storage, "--host", host)
			for _, name := range names {
				if storage == Embedded && name == "infra/main.bicep" {
					continue // the app is not deployed to a plan
				}
				if content := text(t, root, name); !regexp.MustCompile(`has not been deployed|have not been tried|Nothing has run|has been applied`).MatchString(content) {
					t.Errorf("%s of an app with %s does not say it:\n%.600s", name, storage, content)
				}
			}
		}
	}
}

func TestNames_OfAppAndHubFollowTheFolder(t *testing.T) {
	t.Parallel()
	for folder, want := range map[string][2]string{
		"shop": {"shop", "HubShop"}, "My Shop": {"my-shop", "HubMyShop"}, "7up": {"app-7up", "HubApp7up"},
		"日本": {"app", "HubApp"}, strings.Repeat("x", 60): {strings.Repeat("x", 60), "HubX" + strings.Repeat("x", 36)},
	} {
		name := nameOf(folder)
		if hub := hubOf(name); name != want[0] || hub != want[1] {
			t.Errorf("%s: app %s, hub %s, want %v", folder, name, hub, want)
		}
	}
}

// The monitor's port, label and secret are names in the other manifest.
func TestRun_AContainerIsScrapedWithTheKeyForReading(t *testing.T) {
	t.Parallel()
	root := written(t, "--host", Container)
	monitor, app := text(t, root, "deploy/podmonitor.yaml"), text(t, root, "deploy/kubernetes.yaml")
	for _, line := range []string{"app: my-shop-2", "key: DURABLE_READ_KEY", "name: my-shop-2-key"} {
		if !strings.Contains(monitor, line) || !strings.Contains(app, line) {
			t.Errorf("a manifest lacks %q:\n%s", line, monitor)
		}
	}
	if !strings.Contains(monitor, "port: http\n") || !strings.Contains(app, "- name: http\n              containerPort: 8080\n") {
		t.Errorf("the monitor scrapes another port:\n%s", monitor)
	}
	if code := text(t, root, "main.go"); !strings.Contains(code, "Metrics:       prometheus.New()") {
		t.Errorf("the app serves no metrics:\n%s", code)
	}
	if code := text(t, written(t), "main.go"); strings.Contains(code, "prometheus") {
		t.Errorf("an app behind the host serves metrics:\n%s", code)
	}
}
