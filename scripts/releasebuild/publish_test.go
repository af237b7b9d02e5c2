package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// fakeProgram writes a shell script into a folder that is first on PATH.
func fakeProgram(t *testing.T, folder, name, script string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// shell runs a shell with the programs of a folder first on PATH.
func shell(t *testing.T, programs string, env []string, args ...string) string {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the scripts need a shell")
	}
	cmd := exec.CommandContext(t.Context(), "sh", args...)
	cmd.Env = append(os.Environ(), append(env, "PATH="+programs+string(filepath.ListSeparator)+os.Getenv("PATH"))...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("sh %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// GitHub shows one release as the latest.
func TestWorkflow_PublishesACandidateAsPrerelease(t *testing.T) {
	t.Parallel()
	_, step, found := strings.Cut(workflows(t)["release.yml"], "- name: Publish\n")
	_, step, isScript := strings.Cut(step, "run: |\n")
	script, _, hasEnd := strings.Cut(step, "        env:\n")
	if !found || !isScript || !hasEnd {
		t.Fatal("release.yml has no script in a step Publish")
	}
	folder := t.TempDir()
	fakeProgram(t, folder, "gh", `echo "$@"`)
	for tag, want := range map[string]bool{"v0.1.0": false, "v1.0.0": false, "v0.1.0-rc.1": true, "v1.0.0-beta": true} {
		got := shell(t, folder, []string{"TAG=" + tag}, "-euc", script)
		if !strings.HasPrefix(got, "release create "+tag+" ") || strings.Contains(got, " --prerelease ") != want {
			t.Errorf("%s: gh %s", tag, got)
		}
	}
}

func TestScript_ChecksTheFolderInEachFormOfTheFlag(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	tools, out := filepath.Join(root, "tools"), filepath.Join(root, "a folder")
	for _, folder := range []string{tools, out, filepath.Join(root, "scripts")} {
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script, err := os.ReadFile(filepath.Join(checkout, "scripts", "release"))
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(root, "scripts", "release")
	if err := os.WriteFile(copied, script, 0o755); err != nil {
		t.Fatal(err)
	}
	fakeProgram(t, tools, "go", ":") // the files are there
	if err := os.WriteFile(filepath.Join(out, "LICENSE"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writeChecksums(out); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"-o", "a folder"}, {"-o=a folder"}, {"--o", "a folder"}, {"--o=a folder"}, {"-o", "other", "-o=" + out, "--twice"}} {
		if got := shell(t, tools, nil, append([]string{copied}, args...)...); !strings.Contains(got, "1 files match") {
			t.Errorf("%q: %s", args, got)
		}
	}
}
