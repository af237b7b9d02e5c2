//go:build unix

package e2e_test

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// receipt is the output of the new app's orchestration, without the number that a step chooses.
const receipt = `"receipt for order 7, number `

// A newcomer is a new app in a folder of its own.
type newcomer struct {
	root, program string
}

// do runs a command in the app's folder and returns its output. The go command downloads nothing.
func (n newcomer) do(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = n.root, append(environment(), "GOPROXY=off", "GOSUMDB=off", "GOWORK=")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// durableModule is the module path of this checkout.
const durableModule = "github.com/durablefunctions-go/durablefunctions"

// newNewcomer writes and builds a new app with the checkout as its library. In a workspace the checkout's packages are
// those that the tests have compiled, also with -trimpath.
func newNewcomer(t *testing.T) newcomer {
	t.Helper()
	workspace := t.TempDir()
	n := newcomer{filepath.Join(workspace, "shop"), filepath.Join(t.TempDir(), "app")}
	checkout, err := filepath.Abs(checkout)
	if err != nil {
		t.Fatal(err)
	}
	// A build in a workspace reads the go.mod files of all modules in the graph. Other builds do not, so the cache may lack some.
	download := exec.CommandContext(t.Context(), "go", "mod", "download")
	download.Dir = checkout
	if out, err := download.CombinedOutput(); err != nil {
		t.Fatalf("go mod download: %v\n%s", err, out)
	}
	newcomer{root: t.TempDir()}.do(t, binary(t, sampleApp), "-init", "--replace", checkout, n.root)
	n.do(t, "go", append([]string{"mod", "edit"}, requirements(t)...)...)
	if dir := strings.TrimSpace(n.do(t, "go", "list", "-m", "-f", "{{.Dir}}", durableModule)); dir != checkout {
		t.Errorf("the library of the app is in %s, want %s", dir, checkout)
	}
	n.do(t, "go", "work", "init", ".", checkout)
	n.do(t, "go", append(compile("build"), "-o", n.program, ".")...)
	return n
}

// A library is a version of the checkout in a module proxy of files.
type library struct{ version, proxy string }

// published writes the checkout into a module proxy of files, as users will get it. Its version has a hash of its
// content, so that the go command compiles it once. The test removes it from the module cache.
func published(t *testing.T) library {
	t.Helper()
	contents := moduleFiles(t)
	hash := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(contents)) {
		_, _ = fmt.Fprintf(hash, "%s %x\n", name, sha256.Sum256(contents[name]))
	}
	version, root := fmt.Sprintf("v0.0.0-%x", hash.Sum(nil)[:6]), t.TempDir()
	dir := filepath.Join(root, filepath.FromSlash(durableModule), "@v")
	var packed bytes.Buffer
	z := zip.NewWriter(&packed)
	for name, content := range contents {
		w, err := z.Create(durableModule + "@" + version + "/" + name)
		if err == nil {
			_, err = w.Write(content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	err := errors.Join(z.Close(), os.MkdirAll(dir, 0o755))
	for file, content := range map[string][]byte{
		version + ".zip": packed.Bytes(), version + ".mod": contents["go.mod"], version + ".info": []byte(`{"Version": "` + version + `"}`),
		"list": []byte(version + "\n"),
	} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, file), content, 0o644))
	}
	cache, envErr := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE").Output()
	if err = errors.Join(err, envErr); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		modules := strings.TrimSpace(string(cache))
		os.RemoveAll(filepath.Join(modules, filepath.FromSlash(durableModule)+"@"+version))
		files, _ := filepath.Glob(filepath.Join(modules, "cache", "download", filepath.FromSlash(durableModule), "@v", version+"*"))
		for _, file := range files {
			_ = os.Remove(file)
		}
	})
	return library{version, "file://" + filepath.ToSlash(root)}
}

// moduleFiles returns the files that a published version of the checkout has: no links, and no nested modules.
func moduleFiles(t *testing.T) map[string][]byte {
	t.Helper()
	list := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = checkout
	names, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	contents, nested := map[string][]byte{}, []string(nil)
	for name := range strings.SplitSeq(strings.TrimRight(string(names), "\x00"), "\x00") {
		info, err := os.Lstat(filepath.Join(checkout, name))
		if err != nil || !info.Mode().IsRegular() { // deleted, or a link
			continue
		}
		if contents[name], err = os.ReadFile(filepath.Join(checkout, name)); err != nil {
			t.Fatal(err)
		}
		if dir, ok := strings.CutSuffix(name, "/go.mod"); ok {
			nested = append(nested, dir+"/")
		}
	}
	maps.DeleteFunc(contents, func(name string, _ []byte) bool {
		return slices.ContainsFunc(nested, func(dir string) bool { return strings.HasPrefix(name, dir) })
	})
	return contents
}

// requirements returns the `go mod edit` flags that give a module the checkout's requirements and Go version.
// Without them the go command reads the go.mod files of more modules. A module cache that was filled by
// building the checkout does not contain these files.
func requirements(t *testing.T) (flags []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json")
	cmd.Dir = checkout
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	module := decode[struct {
		Go      string
		Require []struct{ Path, Version string }
	}](t, string(out))
	flags = []string{"-go=" + module.Go}
	for _, r := range module.Require {
		flags = append(flags, "-require="+r.Path+"@"+r.Version)
	}
	return flags
}

func (n newcomer) built() (string, error) { return n.program, nil }

// sells places an order and awaits its receipt.
func (a *app) sells() {
	a.t.Helper()
	got := a.call(http.MethodPost, "/api/orders", map[string]any{"id": "7", "cents": 1200})
	if got.status != http.StatusAccepted {
		a.t.Fatalf("%d %s, want 202", got.status, got.body)
	}
	order := a.await(decode[checkStatus](a.t, got.body).StatusQueryGetURI, time.Minute)
	if order.RuntimeStatus != "Completed" || !strings.HasPrefix(string(order.Output), receipt) {
		a.t.Errorf("the order is %s with output %s, want Completed with %s", order.RuntimeStatus, order.Output, receipt)
	}
}

func TestInit_TheNewAppPassesItsTestsAndRunsItsFirstOrchestration(t *testing.T) {
	t.Parallel()
	n := newNewcomer(t)
	n.do(t, "go", append(compile("test"), "-vet=off", "./...")...)
	startStandalone(t, n.built, n.root).sells()
}

// unzipped returns a folder with the files of a zip.
func unzipped(t *testing.T, name string) (root string) {
	t.Helper()
	z, err := zip.OpenReader(name)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close() //nolint:errcheck // only read
	root = t.TempDir()
	for _, f := range z.File {
		path := filepath.Join(root, filepath.FromSlash(f.Name))
		content, err := fs.ReadFile(z, f.Name)
		if err == nil {
			err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, f.Mode()))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// image runs the steps of the app's Dockerfile without its base images. It returns a folder with the files of the image,
// and the variables.
func (u *newUser) image() (image string, env []string) {
	u.Helper()
	image, out := u.TempDir(), u.TempDir()
	for line := range strings.SplitSeq(strings.ReplaceAll(string(u.read("Dockerfile")), "\\\n", ""), "\n") {
		words, err := strings.Fields(line), error(nil)
		switch {
		case len(words) == 0:
		case words[0] == "RUN":
			command := strings.Join(slices.DeleteFunc(words[1:], func(w string) bool { return strings.HasPrefix(w, "--mount") }), " ")
			u.reusing("image", filepath.Join(out, "app"), func() { u.sh(strings.ReplaceAll(command, "/out/", out+"/")) })
		case words[0] == "COPY" && words[1] == "--from=build":
			err = os.Rename(strings.Replace(words[2], "/out", out, 1), filepath.Join(image, words[3]))
		case words[0] == "COPY" && words[1] != ".":
			err = os.Rename(filepath.Join(u.root, words[1]), filepath.Join(image, words[1]))
		case words[0] == "ENV":
			env = append(env, words[1:]...)
		}
		if err != nil {
			u.Fatalf("%s: %v", line, err)
		}
	}
	return image, env
}
