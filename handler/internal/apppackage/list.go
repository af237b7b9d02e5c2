// Package apppackage builds the package that a function app in Azure runs from, and deploys it.
package apppackage

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
)

// entry is a file of the zip.
type entry struct {
	name       string // relative to the zip's root, with slashes
	file       string
	executable bool
}

// never lists files that are always left out, as Core Tools do
// (Common/FileSystemHelpers.cs, GetLocalFiles).
var never = []string{".git", ".vscode", ".funcignore", ".gitignore", "local.settings.json", "project.lock.json"}

// list returns the files of the zip, sorted by name: the files of root, and app at the path of the executable in
// host.json. It skips files that .funcignore or never names, other files in the executable's folder, and an earlier zip.
func list(root, app, zip string) ([]entry, error) {
	executable, err := executablePath(root)
	if err != nil {
		return nil, err
	}
	ignored, err := readIgnore(filepath.Join(root, ".funcignore"))
	if err != nil {
		return nil, err
	}
	earlier, _ := os.Stat(zip)
	entries := []entry{{name: executable, file: app, executable: true}}
	err = filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, file)
		if err != nil || rel == "." {
			return err
		}
		name := filepath.ToSlash(rel)
		switch {
		case slices.Contains(never, name) || ignored.match(name):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir() || name == executable || path.Dir(name) == path.Dir(executable) && path.Dir(name) != ".":
			return nil // a folder, the executable, or a program for another system
		case !d.Type().IsRegular():
			return fmt.Errorf("%s is not a regular file: name it in .funcignore, or replace it by a file", name)
		}
		info, err := d.Info()
		if err == nil && !os.SameFile(info, earlier) {
			entries = append(entries, entry{name: name, file: file})
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return entries, nil
}

// A hostFile is the part of host.json that a package depends on.
type hostFile struct {
	FunctionTimeout any `json:"functionTimeout"`
	CustomHandler   struct {
		Description struct {
			DefaultExecutablePath string `json:"defaultExecutablePath"`
		} `json:"description"`
	} `json:"customHandler"`
	Extensions struct {
		DurableTask struct {
			StorageProvider struct {
				Type string `json:"type"`
			} `json:"storageProvider"`
		} `json:"durableTask"`
	} `json:"extensions"`
}

func readHostFile(root string) (hostFile, error) {
	var host hostFile
	text, err := os.ReadFile(filepath.Join(root, "host.json"))
	if err != nil {
		return host, err
	}
	if err := json.Unmarshal(settings.PlainJSON(text), &host); err != nil {
		return host, fmt.Errorf("read host.json: %w", err)
	}
	return host, nil
}

// planNote returns a note if the host rejects a setting of host.json on some plan, else "".
func planNote(root string) (string, error) {
	host, err := readHostFile(root)
	if err != nil || host.FunctionTimeout != "-1" {
		return "", err
	}
	return "host.json: with functionTimeout \"-1\" the host does not start on the Consumption plan; set at most \"00:10:00\" there\n", nil
}

// executablePath returns the path of the executable in host.json. It must be a relative path with slashes, because
// the Functions host compares it as text.
func executablePath(root string) (string, error) {
	host, err := readHostFile(root)
	if err != nil {
		return "", err
	}
	p := host.CustomHandler.Description.DefaultExecutablePath
	switch {
	case p == "":
		return "", errors.New("host.json names no executable, so the Functions host cannot run the app: set customHandler.description.defaultExecutablePath, such as bin/app; to run it in a container, use docker build")
	case !fs.ValidPath(p) || strings.ContainsAny(p, `\%`):
		return "", fmt.Errorf("host.json: customHandler.description.defaultExecutablePath %q must be a relative path with slashes, such as bin/app", p)
	}
	return p, nil
}

// ignore holds the patterns of a .funcignore, one per line, with the wildcards * and ?. A pattern without a slash
// matches names at any depth. If a folder matches, all its files are left out.
type ignore []string

func readIgnore(file string) (ignore, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	var patterns ignore
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		p := strings.TrimSpace(lines.Text())
		if p == "" || strings.HasPrefix(p, "#") {
			continue
		}
		_, err := path.Match(p, "")
		if err != nil || strings.HasPrefix(p, "!") || strings.Contains(p, "**") {
			return nil, fmt.Errorf("%s:%d: pattern %q is not supported; use a name or a path, with * and ? as the only wildcards", file, n, p)
		}
		patterns = append(patterns, strings.TrimSuffix(p, "/"))
	}
	return patterns, lines.Err()
}

func (ig ignore) match(name string) bool {
	return slices.ContainsFunc(ig, func(p string) bool {
		against := name
		if !strings.Contains(p, "/") {
			against = path.Base(name)
		}
		ok, err := path.Match(strings.TrimPrefix(p, "/"), against)
		return ok && err == nil
	})
}
