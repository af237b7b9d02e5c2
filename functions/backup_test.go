package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestGetFileList_ReturnsOnlyRegularFiles(t *testing.T) {
	t.Setenv("BACKUP_DIRECTORY", t.TempDir())
	site := t.TempDir()
	write(t, filepath.Join(site, "b", "2.txt"), "two")
	write(t, filepath.Join(site, "1.txt"), "one")
	if err := os.Symlink("/etc", filepath.Join(site, "link")); err != nil {
		t.Fatal(err)
	}

	got, err := GetFileList(t.Context(), site)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"1.txt", "b/2.txt"}, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestGetFileList_RefusesABackupInsideOfTheDirectory(t *testing.T) {
	site := t.TempDir()
	t.Setenv("BACKUP_DIRECTORY", filepath.Join(site, "backup"))
	if _, err := GetFileList(t.Context(), site); err == nil {
		t.Error("no error")
	}
}

func TestCopyFile_CanRunTwice(t *testing.T) {
	backup, site := t.TempDir(), t.TempDir()
	t.Setenv("BACKUP_DIRECTORY", backup)
	write(t, filepath.Join(site, "b", "2.txt"), "two")

	for range 2 {
		size, err := CopyFile(t.Context(), SiteFile{site, "b/2.txt"})
		if size != 3 || err != nil {
			t.Fatalf("CopyFile = %d, %v; want 3 bytes", size, err)
		}
	}

	entries, err := os.ReadDir(filepath.Join(backup, site, "b"))
	if err != nil || len(entries) != 1 || entries[0].Name() != "2.txt" {
		t.Errorf("the backup contains %v, %v; want only 2.txt", entries, err)
	}
}

// A file that only its owner can read must have the same permissions in the backup.
func TestCopyFile_KeepsModes(t *testing.T) {
	backup, site := filepath.Join(t.TempDir(), "backup"), t.TempDir()
	t.Setenv("BACKUP_DIRECTORY", backup)
	modes := map[string]os.FileMode{"": 0o750, "closed": 0o700, "closed/secret": 0o600, "closed/run": 0o755, "open": 0o755, "open/fixed": 0o555, "open/fixed/text": 0o444}
	for _, file := range []string{"closed/secret", "closed/run", "open/fixed/text"} {
		write(t, filepath.Join(site, file), "x")
	}
	for name, mode := range modes {
		if err := os.Chmod(filepath.Join(site, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		for _, file := range []string{"closed/secret", "closed/run", "open/fixed/text"} {
			if _, err := CopyFile(t.Context(), SiteFile{site, file}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, want := range modes {
		info, err := os.Stat(filepath.Join(backup, site, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.IsDir() {
			want |= 0o700
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%q has mode %v, want %v", name, got, want)
		}
	}
	if info, err := os.Stat(filepath.Join(backup, filepath.Dir(site))); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the parent folder of the backup has mode %v, %v; want 0700", info.Mode().Perm(), err)
	}
}

func TestCopyFile_RefusesNamesThatLeadOutOfTheDirectory(t *testing.T) {
	backup, site := t.TempDir(), t.TempDir()
	t.Setenv("BACKUP_DIRECTORY", backup)
	write(t, filepath.Join(site, "secret"), "s")
	inner := filepath.Join(site, "inner")
	write(t, filepath.Join(inner, "1.txt"), "one")
	if err := os.Symlink(filepath.Join(site, "secret"), filepath.Join(inner, "link")); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"../secret", "link", filepath.Join(site, "secret")} {
		if size, err := CopyFile(t.Context(), SiteFile{inner, file}); err == nil {
			t.Errorf("CopyFile(%q) copied %d bytes", file, size)
		}
	}
}

func TestBackupOf_RequiresADirectory(t *testing.T) {
	if _, err := backupOf(""); err == nil || !strings.Contains(err.Error(), "input") {
		t.Errorf("err = %v, want an error that describes the input", err)
	}
}
