package newapp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
)

// compare prints the differences between the app in a folder and the files that -init writes for the same storage and
// host. It skips files that users edit, such as main.go.
func compare(a app, root string, out io.Writer) error {
	a, err := adopt(a, root)
	if err != nil {
		return err
	}
	texts, err := a.rendered()
	if err != nil {
		return err
	}
	for _, f := range files {
		if f.user {
			delete(texts, f.name)
		}
	}
	same := true
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		file := filepath.Join(root, filepath.FromSlash(name))
		has, err := os.ReadFile(file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			_, err = fmt.Fprintf(out, "%s is new. -init would write it into a new app.\n", name)
		case err == nil && bytes.Equal(has, texts[name]):
			continue
		case err == nil:
			err = difference(file, name, texts[name], out)
		}
		if same = false; err != nil {
			return err
		}
	}
	if same {
		_, err = fmt.Fprintf(out, "The app in %s has all files of a new app, and they are the same. Nothing was written.\n", root)
	} else {
		_, err = fmt.Fprintf(out, "\n%s has an app already, so nothing was written. Lines with + are new. Write a new app into an empty folder to copy files from it.\n", root)
	}
	return err
}

// The lines of an app's files that have its name and its storage type.
var (
	deployLine = regexp.MustCompile(`bin/app deploy \$\{\{ vars\.RESOURCE_GROUP \}\} ([a-z0-9-]+)(?: storageType=(\w+))?\n`)
	nameLine   = regexp.MustCompile(`kind: ServiceAccount\nmetadata:\n  name: ([a-z0-9-]+)\n`)
	typeLine   = regexp.MustCompile(`storageProvider__type\n +value: (\w+)\n`)
)

// find returns the groups of a pattern in a file of an app, or nil.
func find(root, name string, pattern *regexp.Regexp) []string {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		return nil
	}
	return pattern.FindStringSubmatch(string(text))
}

// adopt returns a copy of a with the name, module, hub, storage and host of the app in a folder. It keeps a name or
// storage that the app's files do not have.
func adopt(a app, root string) (app, error) {
	module, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return a, err
	}
	if line, _, _ := strings.Cut(string(module), "\n"); strings.HasPrefix(line, "module ") {
		a.Module = strings.TrimSpace(strings.TrimPrefix(line, "module "))
	}
	var host struct {
		CustomHandler *struct{}
		Extensions    struct {
			DurableTask struct {
				HubName         string
				StorageProvider struct{ Type string }
			}
		}
	}
	text, err := os.ReadFile(filepath.Join(root, settings.HostJSONFile))
	if err == nil {
		err = json.Unmarshal(settings.PlainJSON(text), &host)
	}
	if err != nil {
		return a, fmt.Errorf("read %s: %w", settings.HostJSONFile, err)
	}
	if line := find(root, ".github/workflows/ci.yml", deployLine); line != nil {
		a.Name, a.Storage = line[1], cmp.Or(strings.ToLower(line[2]), AzureStorage)
	}
	if line := find(root, "deploy/kubernetes.yaml", nameLine); line != nil {
		a.Name = line[1]
	}
	if line := find(root, "deploy/kubernetes.yaml", typeLine); line != nil {
		a.Storage = strings.ToLower(line[1])
	}
	task := host.Extensions.DurableTask
	a.Hub = task.HubName
	if task.StorageProvider.Type != "" {
		a.Storage = strings.ToLower(task.StorageProvider.Type)
	}
	a.Host = Functions
	if host.CustomHandler == nil {
		a.Host = Container
	}
	return a, nil
}

// difference prints the differing lines of a file and a new text in the format of git diff. Without git it only reports
// that they differ.
func difference(file, name string, text []byte, out io.Writer) error {
	git := exec.Command("git", "diff", "--no-index", "--no-color", "--", file, "-")
	git.Stdin = bytes.NewReader(text)
	shown, err := git.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() != 1) { // 1 means that they differ
		_, err := fmt.Fprintf(out, "%s differs. With git on PATH, its lines would be shown.\n", name)
		return err
	}
	_, lines, _ := strings.Cut(string(shown), "\n@@")
	_, err = fmt.Fprintf(out, "%s differs:\n@@%s", name, lines)
	return err
}
