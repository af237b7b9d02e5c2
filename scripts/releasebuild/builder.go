package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	modmodule "golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// buildFlags are the flags of each build. The programs contain no paths of the machine and no symbols for a debugger.
var buildFlags = []string{"-trimpath", "-ldflags=-s"}

// writeProxy writes the commit of a checkout and its time into a module proxy of files, as a version of the module. Changes
// that are not committed are not part of it.
func writeProxy(ctx context.Context, root, checkout, version, time string) error {
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	dir := filepath.Join(root, filepath.FromSlash(module), "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	clone := filepath.Join(root, "clone") // checkout may be a work tree, which package zip does not recognize
	if _, err := git(ctx, checkout, "clone", "--quiet", "--no-checkout", ".", clone); err != nil {
		return err
	}
	defer os.RemoveAll(clone)
	var packed bytes.Buffer
	if err := zip.CreateFromVCS(&packed, modmodule.Version{Path: module, Version: version}, clone, "HEAD", ""); err != nil {
		return fmt.Errorf("pack the commit as a module: %w", err)
	}
	mod, err := git(ctx, checkout, "show", "HEAD:go.mod")
	if err != nil {
		return err
	}
	info := fmt.Appendf(nil, `{"Version": %q, "Time": %q}`, version, time)
	for name, content := range map[string][]byte{
		version + ".zip": packed.Bytes(), version + ".mod": mod, version + ".info": info, "list": []byte(version + "\n"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func git(ctx context.Context, dir string, args ...string) ([]byte, error) {
	var errs bytes.Buffer
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir, cmd.Stderr = dir, &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w\n%s", args[0], err, &errs)
	}
	return out, nil
}

// A builder builds programs of the module in a folder of its own.
type builder struct {
	version string
	folder  string   // has a module cache, and the built programs
	env     []string // variables of the go command
}

// newBuilder returns a builder that gets the module from a proxy of files, and other modules from the module cache of this
// machine or the configured proxy. It uses the build cache of this machine.
func newBuilder(ctx context.Context, version, proxy, folder string) (builder, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		return builder{}, fmt.Errorf("go env: %w", err)
	}
	modules, configured, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	proxies := []string{fileURL(proxy), fileURL(filepath.Join(modules, "cache", "download")), strings.TrimSpace(configured)}
	b := builder{version: version, env: append(os.Environ(),
		"GOPROXY="+strings.Join(proxies, ","), "GONOSUMDB="+module, "GOPRIVATE=", "GONOPROXY=", "GOWORK=off", "GOFLAGS=-modcacherw", "GOBIN=",
		"CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOTOOLCHAIN=local")}
	return b.in(folder), nil
}

// fileURL returns the URL of a folder.
func fileURL(folder string) string {
	return "file:///" + strings.TrimPrefix(filepath.ToSlash(folder), "/")
}

// in returns a copy of b that builds in another folder.
func (b builder) in(folder string) builder {
	b.folder = folder
	b.env = append(b.env[:len(b.env):len(b.env)], "GOPATH="+folder, "GOMODCACHE="+filepath.Join(folder, "modules"))
	return b
}

// elsewhere returns a copy of b that builds in another folder, without the build cache of this machine.
func (b builder) elsewhere(folder string) builder {
	b = b.in(folder)
	b.env = append(b.env, "GOCACHE="+filepath.Join(folder, "cache"))
	return b
}

// install builds a program for a platform, and moves it to a file.
func (b builder) install(ctx context.Context, program, platform, file string) error {
	system, processor, ok := strings.Cut(platform, "/")
	if !ok {
		return fmt.Errorf("platform %q: want a system and a processor, such as linux/amd64", platform)
	}
	if err := os.MkdirAll(b.folder, 0o755); err != nil {
		return err
	}
	args := append([]string{"install"}, buildFlags...)
	cmd := exec.CommandContext(ctx, "go", append(args, module+"/"+program+"@"+b.version)...)
	cmd.Dir, cmd.Env = b.folder, append(b.env[:len(b.env):len(b.env)], "GOOS="+system, "GOARCH="+processor)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s for %s: %w\n%s", program, platform, err, out)
	}
	built := filepath.Join(b.folder, "bin", path.Base(program))
	if platform != runtime.GOOS+"/"+runtime.GOARCH {
		built = filepath.Join(b.folder, "bin", system+"_"+processor, path.Base(program))
	}
	if system == "windows" {
		built += ".exe"
	}
	content, err := os.ReadFile(built)
	if err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o755)
}

// compare builds a program again, and returns an error unless it has the bytes of a file.
func (b builder) compare(ctx context.Context, program, platform, file string) error {
	again := filepath.Join(b.folder, "again")
	if err := b.install(ctx, program, platform, again); err != nil {
		return err
	}
	want, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	got, err := os.ReadFile(again)
	if err != nil {
		return err
	}
	if !bytes.Equal(want, got) {
		return fmt.Errorf("%s for %s: two builds of %s have different bytes", program, platform, b.version)
	}
	fmt.Printf("%s: two builds have the same %d bytes\n", filepath.Base(file), len(got))
	return nil
}
