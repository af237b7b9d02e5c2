package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/handler/processtest"
)

// checkout is the root of this module.
var checkout = filepath.Join("..", "..")

// The build fails if a program for this machine reports another version.
func TestBuild_WritesProgramsThatReportTheVersionOfTheChangelog(t *testing.T) {
	processtest.SkipInShortRuns(t)
	text, err := os.ReadFile(filepath.Join(checkout, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	newest, err := newestVersion(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := git(t.Context(), checkout, "rev-parse", "HEAD"); err != nil {
		t.Skipf("no checkout: %v", err)
	}
	t.Setenv("GOSUMDB", "off")
	here := runtime.GOOS + "/" + runtime.GOARCH
	r := release{version: "v" + newest.number, platforms: []string{here}, out: filepath.Join(t.TempDir(), "release")}
	if err := r.build(t.Context(), checkout); err != nil {
		t.Fatal(err)
	}
	want := []string{"LICENSE"}
	for _, program := range programs {
		want = append(want, r.fileName(program, here))
	}
	slices.Sort(want)
	var got []string
	sums, err := os.ReadFile(filepath.Join(r.out, checksumFile))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(sums)) {
		_, file, _ := strings.Cut(strings.TrimSpace(line), "  ")
		got = append(got, file)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s has the files %q, want %q", checksumFile, got, want)
	}
	r.version = "v9.9.9"
	if err := r.checkVersion(t.Context(), filepath.Join(r.out, "durable-v"+newest.number+"-"+strings.ReplaceAll(here, "/", "-")+exe())); err == nil {
		t.Error("a program of another version passes the check")
	}
}

func exe() string {
	if runtime.GOOS == "windows" {
		return ".exe"
	}
	return ""
}

func TestWriteChecksums_ListsEachFile(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for _, name := range []string{"b", "a"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("abc"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := writeChecksums(folder); err != nil {
		t.Fatal(err)
	}
	const sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" // SHA-256 of abc
	got, err := os.ReadFile(filepath.Join(folder, checksumFile))
	if want := fmt.Sprintf("%s  a\n%[1]s  b\n", sum); err != nil || string(got) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
}

func TestFileName_HasVersionAndPlatform(t *testing.T) {
	t.Parallel()
	r := release{version: "v0.1.0"}
	for platform, want := range map[string]string{"linux/arm64": "durable-v0.1.0-linux-arm64", "windows/amd64": "durable-v0.1.0-windows-amd64.exe"} {
		if got := r.fileName("handler/cmd/durable", platform); got != want {
			t.Errorf("%s: %s, want %s", platform, got, want)
		}
	}
}

func TestEmptyFolder_DeletesOnlyAnEarlierRelease(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "bin", "release")
	write := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := emptyFolder(folder); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"LICENSE", checksumFile, "durable-v0.1.0-linux-amd64.cdx.json", "durablecheck-v0.1.0-rc.1-windows-amd64.exe"} {
		write(name)
	}
	if err := emptyFolder(folder); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(folder); err != nil || len(entries) > 0 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
	write("LICENSE")
	write("go.mod")
	if err := emptyFolder(folder); err == nil || !strings.Contains(err.Error(), "go.mod") {
		t.Errorf("a folder with other files: %v", err)
	}
	if entries, err := os.ReadDir(folder); err != nil || len(entries) != 2 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}
