package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tidwall/jsonc"
)

// entry is a file of the zip.
type entry struct {
	name       string // relative to the zip's root, with slashes
	file       string
	executable bool
}

// never lists the names that are always skipped, as in Core Tools (Common/FileSystemHelpers.cs,
// GetLocalFiles).
var never = []string{".git", ".vscode", ".funcignore", ".gitignore", "local.settings.json", "project.lock.json"}

// list returns the entries of the zip, sorted by name. They are the files of root that .funcignore does not
// match, and app at the path of the executable in host.json.
func list(root, app string) ([]entry, error) {
	executable, err := executablePath(root)
	if err != nil {
		return nil, err
	}
	ignored, err := readIgnore(filepath.Join(root, ".funcignore"))
	if err != nil {
		return nil, err
	}
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
			return nil // skips other builds of the executable
		case !d.Type().IsRegular():
			return fmt.Errorf("%s is not a regular file; add it to .funcignore or replace it by a file", name)
		}
		entries = append(entries, entry{name: name, file: file})
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return entries, nil
}

// hostFile is the part of host.json that affects the zip.
type hostFile struct {
	FunctionTimeout any `json:"functionTimeout"`
	CustomHandler   struct {
		Description struct {
			DefaultExecutablePath string `json:"defaultExecutablePath"`
		} `json:"description"`
	} `json:"customHandler"`
}

func readHostFile(root string) (hostFile, error) {
	var host hostFile
	text, err := os.ReadFile(filepath.Join(root, "host.json"))
	if err != nil {
		return host, err
	}
	if err := json.Unmarshal(jsonc.ToJSON(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))), &host); err != nil {
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
	return `host.json: with functionTimeout "-1" the host does not start on the Consumption plan; set at most "00:10:00" there`, nil
}

// executablePath returns the path of the executable from host.json. It must be a plain relative path with
// slashes, because the host compares it with the zip's entries.
func executablePath(root string) (string, error) {
	host, err := readHostFile(root)
	if err != nil {
		return "", err
	}
	p := host.CustomHandler.Description.DefaultExecutablePath
	switch {
	case p == "":
		return "", errors.New("host.json has no executable; set customHandler.description.defaultExecutablePath, such as bin/app")
	case !fs.ValidPath(p) || strings.ContainsAny(p, `\%`):
		return "", fmt.Errorf("host.json: customHandler.description.defaultExecutablePath %q must be a relative path with slashes, such as bin/app", p)
	}
	return p, nil
}

// ignore holds the patterns of a .funcignore file, one per line. A pattern without a slash inside matches at
// any depth. * and ? have the same meaning as in a shell. A matched folder is skipped with its contents.
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
