package apppackage

import (
	"archive/zip"
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const hostJSON = `{"customHandler": {"description": {"defaultExecutablePath": "bin/app"}}}`

// files writes files to a new folder, and an executable next to it.
func files(t *testing.T, content map[string]string) (root, app string) {
	t.Helper()
	root = t.TempDir()
	for name, text := range content {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	app = filepath.Join(t.TempDir(), "for-linux")
	if err := os.WriteFile(app, []byte("the executable"), 0o600); err != nil {
		t.Fatal(err)
	}
	return root, app
}

func zipped(t *testing.T, root, app string) (raw []byte, r *zip.Reader) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "app.zip")
	if _, err := write(out, root, app); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	r, err = zip.NewReader(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	return raw, r
}

func names(r *zip.Reader) []string {
	var names []string
	for _, f := range r.File {
		names = append(names, f.Name)
	}
	return names
}

func TestZip_ContainsOnlyTheFilesThatTheHostNeeds(t *testing.T) {
	root, app := files(t, map[string]string{
		".funcignore":             "# not for the host\n*.go\n/scripts\ngo.mod\ntestdata/\n",
		".git/config":             "x",
		".gitignore":              "x",
		"bin/app":                 "built for this machine",
		"bin/app.exe":             "built for another",
		"functions/function.json": "{}",
		"functions/main.go":       "x",
		"functions/testdata/x":    "x",
		"go.mod":                  "x",
		"host.json":               hostJSON,
		"local.settings.json":     `{"Values": {"AzureWebJobsStorage": "secret"}}`,
		"nightly/function.json":   "{}",
		"scripts/build":           "x",
		"wwwroot/scripts/a.js":    "x",
	})
	_, r := zipped(t, root, app)
	want := []string{"bin/app", "functions/function.json", "host.json", "nightly/function.json", "wwwroot/scripts/a.js"}
	if got := names(r); !slices.Equal(got, want) {
		t.Errorf("the zip contains %q, want %q", got, want)
	}
}

func TestPlanNote_WarnsAboutATimeoutThatThePlanRejects(t *testing.T) {
	for hostJSON, want := range map[string]bool{
		`{"functionTimeout": "-1"} // none`: true, `{"functionTimeout": "00:10:00"}`: false, `{}`: false,
	} {
		root, _ := files(t, map[string]string{"host.json": hostJSON})
		note, err := planNote(root)
		if err != nil || (note != "") != want || want && !strings.Contains(note, "Consumption plan") {
			t.Errorf("%s: the note is %q, %v", hostJSON, note, err)
		}
	}
	if note, err := planNote("../../.."); err != nil || note == "" {
		t.Errorf("the note for this repository is %q, %v", note, err)
	}
}

// On Premium and Dedicated plans the host does not set the mode of the executable.
func TestZip_SetsTheModeOfTheExecutable(t *testing.T) {
	root, app := files(t, map[string]string{"host.json": hostJSON})
	_, r := zipped(t, root, app)
	modes := map[string]fs.FileMode{}
	for _, f := range r.File {
		modes[f.Name] = f.Mode()
	}
	if modes["bin/app"] != 0o755 || modes["host.json"] != 0o644 {
		t.Errorf("modes are %v", modes)
	}
	f, err := r.Open("bin/app")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(f)
	if err != nil || string(text) != "the executable" {
		t.Errorf("bin/app contains %q, %v", text, err)
	}
}

func TestZip_IsTheSameByteForByte(t *testing.T) {
	content := map[string]string{"host.json": hostJSON, "a/function.json": "{}", "b/function.json": "{}"}
	root, app := files(t, content)
	first, _ := zipped(t, root, app)
	root, app = files(t, content)
	past := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(root, "host.json"), past, past); err != nil {
		t.Fatal(err)
	}
	second, _ := zipped(t, root, app)
	if !bytes.Equal(first, second) {
		t.Error("two zips of the same files differ")
	}
}

func TestZip_LeavesOutTheZipItself(t *testing.T) {
	root, app := files(t, map[string]string{"host.json": hostJSON, "other.zip": "x"})
	out := filepath.Join(root, "app.zip")
	var zips [2][]byte
	for i := range zips {
		n, err := write(out, root, app)
		if err != nil || n != 3 {
			t.Fatalf("%d files, want 3: %v", n, err)
		}
		if zips[i], err = os.ReadFile(out); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(zips[0], zips[1]) {
		t.Error("the second zip of the same files differs")
	}
}

func TestZip_RefusesAnAppThatWouldNotRun(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no host.json":             {map[string]string{}, "host.json"},
		"no JSON":                  {map[string]string{"host.json": "{"}, "read host.json"},
		"no executable":            {map[string]string{"host.json": "{}"}, "set customHandler.description.defaultExecutablePath"},
		"a path the host rewrites": {map[string]string{"host.json": strings.Replace(hostJSON, "bin/app", "./bin/app", 1)}, `"./bin/app" must be a relative path`},
		"a variable":               {map[string]string{"host.json": strings.Replace(hostJSON, "bin/app", "%APP%", 1)}, `"%APP%" must be a relative path`},
		"a negated pattern":        {map[string]string{"host.json": hostJSON, ".funcignore": "*.md\n!README.md\n"}, `.funcignore:2: pattern "!README.md"`},
	} {
		t.Run(name, func(t *testing.T) {
			root, app := files(t, c.files)
			out := filepath.Join(t.TempDir(), "app.zip")
			_, err := write(out, root, app)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want an error with %q", err, c.want)
			}
			if _, err := os.Stat(out); err == nil {
				t.Error("a zip was written")
			}
		})
	}
}
