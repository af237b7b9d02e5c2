package azuritetest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Version is the version of Azurite that [Start] installs with npm. scripts/azurite installs the
// same version.
const Version = "3.37.0"

var errNotFound = errors.New("azurite not found")

// find returns the path of the Azurite executable.
func find() (string, error) {
	if path := os.Getenv("AZURITE"); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("the environment variable AZURITE: %w", err)
		}
		return path, nil
	}
	root, err := repositoryRoot()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, ".azurite")
	installed := filepath.Join(dir, "node_modules", ".bin", "azurite")
	if _, err := os.Stat(installed); err == nil {
		return installed, nil
	}
	if path, err := exec.LookPath("azurite"); err == nil {
		return path, nil
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", fmt.Errorf("%w: AZURITE is not set, %s does not exist, and neither azurite nor npm is on PATH", errNotFound, installed)
	}
	if err := install(npm, dir, installed); err != nil {
		return "", fmt.Errorf("%w: %w", errNotFound, err)
	}
	return installed, nil
}

// install installs Azurite into dir. The test binaries of several packages run at the same time:
// all but the first wait for the lock and find Azurite installed.
func install(npm, dir, installed string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	unlock, err := lock(filepath.Join(dir, "install.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Stat(installed); err == nil {
		return nil
	}
	// Install into a temporary folder first: a process that does not wait for the lock must not
	// find an incomplete installation.
	tmp, err := os.MkdirTemp(dir, "install.*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	cmd := exec.Command(npm, "install", "--prefix", tmp, "--no-fund", "--no-audit", "--loglevel=error", "azurite@"+Version)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm install failed: %w\n%s", err, out)
	}
	return os.Rename(filepath.Join(tmp, "node_modules"), filepath.Join(dir, "node_modules"))
}

// repositoryRoot returns the folder with go.mod at or above the working directory. The working
// directory is the folder of the package under test.
func repositoryRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%w: no go.mod at or above %s", errNotFound, start)
		}
	}
}
