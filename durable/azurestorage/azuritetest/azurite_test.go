package azuritetest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestConnectionString_IsEmptyUntilAllServicesListen(t *testing.T) {
	log := "Azurite Blob service is starting at http://127.0.0.1:0\n" +
		"Azurite Blob service is successfully listening at http://127.0.0.1:41\n" +
		"Azurite Queue service is successfully listening at http://127.0.0.1:42\n" +
		"Azurite Table service is starting at http://127.0.0.1:0\n"
	if got := connectionString(log); got != "" {
		t.Errorf("with two services: %q, want an empty string", got)
	}
	got := connectionString(log + "Azurite Table service is successfully listening at http://127.0.0.1:43\n")
	for _, want := range []string{
		"BlobEndpoint=http://127.0.0.1:41/devstoreaccount1;",
		"QueueEndpoint=http://127.0.0.1:42/devstoreaccount1;",
		"TableEndpoint=http://127.0.0.1:43/devstoreaccount1;",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q does not contain %q", got, want)
		}
	}
}

func TestRequired_ReadsAListOfWords(t *testing.T) {
	t.Setenv("DURABLE_TEST_REQUIRE", "func, azurite")
	for word, want := range map[string]bool{"azurite": true, "func": true, "az": false, "": false} {
		if got := Required(word); got != want {
			t.Errorf("Required(%q) = %v, want %v", word, got, want)
		}
	}
}

func TestVersion_EqualsTheVersionOfTheScript(t *testing.T) {
	root, err := repositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile(filepath.Join(root, "scripts", "azurite"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "\nversion=" + Version + " "; !strings.Contains(string(script), want) {
		t.Errorf("scripts/azurite has no line %q", want)
	}
}

func TestInstall_IsAtomic(t *testing.T) {
	dir := t.TempDir()
	// fake is an npm that installs one file in the requested folder.
	npm := filepath.Join(dir, "npm")
	fake := "#!/bin/sh\nmkdir -p \"$3/node_modules/.bin\" && echo \"$7\" >\"$3/node_modules/.bin/azurite\"\n"
	if err := os.WriteFile(npm, []byte(fake), 0o755); err != nil {
		t.Fatal(err)
	}
	installed := filepath.Join(dir, "node_modules", ".bin", "azurite")
	for range 2 { // the second call finds Azurite installed
		if err := install(npm, dir, installed); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(installed)
	if err != nil || string(got) != "azurite@"+Version+"\n" {
		t.Errorf("installed %q, %v", got, err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "install.*"))
	if err != nil || len(left) != 1 { // the lock file
		t.Errorf("left in the folder: %v, %v; want only the lock file", left, err)
	}
}
