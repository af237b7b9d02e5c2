// Command releasebuild builds the files of a release, for scripts/release: the programs of this module for each
// platform, their bills of materials, checksums, and notes from CHANGELOG.md.
//
// It builds a commit as users do: with go install, from a module proxy. The bytes therefore depend only on the commit,
// the version and the version of Go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// module is the path of this module.
const module = "github.com/durablefunctions-go/durablefunctions"

// programs are the packages of the released programs.
var programs = []string{"durable/durablecheck/cmd/durablecheck", "handler/cmd/durable"}

// platforms are the released platforms.
const platforms = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64"

// bom is the program that writes a bill of materials.
const bom = "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0"

// A release describes the files to build.
type release struct {
	version   string // such as v0.1.0
	time      string // of the commit, such as 2026-01-31T12:00:00+01:00
	platforms []string
	twice     bool   // builds everything twice, and compares
	bom       bool   // writes bills of materials
	out       string // the folder of the files
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "scripts/release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	r := release{bom: true}
	tag := flag.String("tag", "", "the tag of the release; it must be the newest version in CHANGELOG.md")
	targets := flag.String("platforms", platforms, "the platforms to build for")
	flag.BoolVar(&r.twice, "twice", false, "build twice, in two folders without a shared cache, and compare the bytes")
	flag.StringVar(&r.out, "o", filepath.Join("bin", "release"), "the folder of the files")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	r.platforms = strings.Split(*targets, ",")
	text, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		return err
	}
	newest, err := newestVersion(string(text))
	if err != nil {
		return err
	}
	if *tag != "" {
		if err := newest.checkTag(*tag); err != nil {
			return err
		}
	}
	r.version = "v" + newest.number
	if err := r.build(ctx, "."); err != nil {
		return err
	}
	return os.WriteFile(filepath.Clean(r.out)+"-notes.md", []byte(newest.notes+r.verification()), 0o644)
}

// build writes the files of the release. Checkout is a folder with a commit of the module.
func (r release) build(ctx context.Context, checkout string) error {
	work, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := emptyFolder(r.out); err != nil {
		return err
	}
	license, err := os.ReadFile(filepath.Join(checkout, "LICENSE"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.out, "LICENSE"), license, 0o644); err != nil {
		return err
	}
	date, err := git(ctx, checkout, "show", "--no-patch", "--format=%cI", "HEAD")
	if err != nil {
		return err
	}
	r.time = strings.TrimSpace(string(date))
	proxy := filepath.Join(work, "proxy")
	if err := writeProxy(ctx, proxy, checkout, r.version, r.time); err != nil {
		return err
	}
	first, err := newBuilder(ctx, r.version, proxy, filepath.Join(work, "first"))
	if err != nil {
		return err
	}
	second := first.elsewhere(filepath.Join(work, "the second folder"))
	for _, platform := range r.platforms {
		for _, program := range programs {
			file := filepath.Join(r.out, r.fileName(program, platform))
			if err := first.install(ctx, program, platform, file); err != nil {
				return err
			}
			if r.twice {
				if err := second.compare(ctx, program, platform, file); err != nil {
					return err
				}
			}
			if err := r.finish(ctx, platform, file); err != nil {
				return err
			}
		}
	}
	return writeChecksums(r.out)
}

// emptyFolder creates a folder, or deletes the files of an earlier release in it. It refuses a folder with other files.
func emptyFolder(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, entry := range entries {
		if !releasedFile.MatchString(entry.Name()) {
			return fmt.Errorf("folder %s has %s, which is not a file of a release; choose another folder", folder, entry.Name())
		}
	}
	return errors.Join(os.RemoveAll(folder), os.MkdirAll(folder, 0o755))
}

// releasedFile matches the names of files of a release.
var releasedFile = regexp.MustCompile(`^(LICENSE|` + regexp.QuoteMeta(checksumFile) + `|\w+-v\d+\.\d+\.\d+-.+)$`)

// fileName returns the name of a program's file for a platform, such as durable-v0.1.0-linux-amd64.
func (r release) fileName(program, platform string) string {
	name := path.Base(program) + "-" + r.version + "-" + strings.ReplaceAll(platform, "/", "-")
	if strings.HasPrefix(platform, "windows/") {
		name += ".exe"
	}
	return name
}

// finish writes the bill of materials of a program, and runs the program if it is for this machine.
func (r release) finish(ctx context.Context, platform, file string) error {
	if r.bom {
		if err := r.writeBOM(ctx, file); err != nil {
			return fmt.Errorf("write the bill of materials of %s: %w", file, err)
		}
	}
	if platform == runtime.GOOS+"/"+runtime.GOARCH {
		return r.checkVersion(ctx, file)
	}
	return nil
}

var timestamp = regexp.MustCompile(`"timestamp": "[^"]*"`)

// writeBOM writes the bill of materials of a program. Its time is the time of the commit, so that its bytes can be
// reproduced.
func (r release) writeBOM(ctx context.Context, file string) error {
	name := file + ".cdx.json"
	cmd := exec.CommandContext(ctx, "go", "run", "-trimpath", bom, "bin", "-json", "-std", "-noserial", "-version", r.version, "-output", name, file)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	return os.WriteFile(name, timestamp.ReplaceAll(text, fmt.Appendf(nil, `"timestamp": %q`, r.time)), 0o644)
}

// checkVersion returns an error unless a program for this machine reports the release's version.
func (r release) checkVersion(ctx context.Context, file string) error {
	path, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return fmt.Errorf("%s --version: %w", file, err)
	}
	if want := module + " " + r.version + ","; !strings.HasPrefix(string(out), want) {
		return fmt.Errorf("%s --version reports %q; want %q", file, strings.TrimSpace(string(out)), want)
	}
	return nil
}

// verification returns the notes' section about the files.
func (r release) verification() string {
	var commands strings.Builder
	for _, program := range programs {
		fmt.Fprintf(&commands, "    CGO_ENABLED=0 GOTOOLCHAIN=%s go install %s %s/%s@%s\n", runtime.Version(), strings.Join(buildFlags, " "), module, program, r.version)
	}
	return fmt.Sprintf(`
### Check the files

`+"`checksums.txt`"+` has the SHA-256 of each file. `+"`gh attestation verify FILE --repo %s`"+` checks that the
workflow of this repository built a file. These commands build the same bytes, for the platform in GOOS and GOARCH:

%s`, strings.TrimPrefix(module, "github.com/"), commands.String())
}
