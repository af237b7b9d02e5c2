package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// BackupSiteContent shows fan-out/fan-in: it copies all files of a directory in parallel
// and returns their total size in bytes. [backupOf] determines the target of the copies.
func BackupSiteContent(ctx *durable.Context, directory string) (int64, error) {
	files, err := durable.CallActivity(ctx, GetFileList, directory).Await()
	if err != nil {
		return 0, err
	}
	copies := make([]*durable.Task[int64], len(files))
	for i, file := range files {
		copies[i] = durable.CallActivity(ctx, CopyFile, SiteFile{directory, file})
	}
	sizes, err := durable.AwaitAll(ctx, copies...)
	if err != nil {
		return 0, err
	}
	var total int64
	for _, size := range sizes {
		total += size
	}
	return total, nil
}

// SiteFile is a file and the directory to back up.
type SiteFile struct {
	Directory string `json:"directory"`
	File      string `json:"file"` // relative to Directory, with slashes
}

// GetFileList returns the relative paths of all regular files below a directory, sorted. It
// skips symbolic links, so that no file outside of the directory is copied.
func GetFileList(_ context.Context, directory string) ([]string, error) {
	target, err := backupOf(directory)
	if err != nil {
		return nil, err
	}
	if inside, err := filepath.Rel(directory, target); err == nil && filepath.IsLocal(inside) {
		return nil, fmt.Errorf("back up %s: the backup %s would be inside the directory", directory, target)
	}
	files := []string{}
	err = fs.WalkDir(os.DirFS(directory), ".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", directory, err)
	}
	return files, nil
}

// CopyFile copies one file and returns its size in bytes. An activity can run twice, even
// at the same time on two machines. Each run therefore writes a temporary file and renames
// it to the final name.
func CopyFile(_ context.Context, f SiteFile) (size int64, err error) {
	target, err := backupOf(f.Directory)
	if err != nil {
		return 0, err
	}
	// os.Root rejects names that lead out of the directory, by ".." or by a link.
	site, err := os.OpenRoot(f.Directory)
	if err != nil {
		return 0, err
	}
	defer site.Close()
	if err := makeTarget(site, target); err != nil {
		return 0, err
	}
	backup, err := os.OpenRoot(target)
	if err != nil {
		return 0, err
	}
	defer backup.Close()

	source, err := site.Open(filepath.FromSlash(f.File))
	if err != nil {
		return 0, err
	}
	defer source.Close()
	file := filepath.FromSlash(f.File)
	if err := makeFolders(site, backup, filepath.Dir(file)); err != nil {
		return 0, err
	}
	info, err := source.Stat()
	if err != nil {
		return 0, err
	}
	part := file + "." + rand.Text() + ".part"
	defer func() {
		if err != nil {
			err = errors.Join(err, backup.Remove(part))
		}
	}()
	out, err := backup.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	size, err = io.Copy(out, source)
	if err := errors.Join(err, out.Chmod(info.Mode().Perm()), out.Close()); err != nil {
		return 0, err
	}
	return size, backup.Rename(part, file)
}

// makeTarget creates the backup folder of a site, with the site's permissions. Parent
// folders that it creates are private.
func makeTarget(site *os.Root, target string) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(target, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := site.Stat(".")
	if err != nil {
		return err
	}
	return os.Chmod(target, info.Mode().Perm()|0o700)
}

// makeFolders creates a folder and its parents in a backup. They have the permissions of
// the site's folders, and the owner can always write.
func makeFolders(site, backup *os.Root, folder string) error {
	if folder == "." {
		return nil
	}
	if err := makeFolders(site, backup, filepath.Dir(folder)); err != nil {
		return err
	}
	if err := backup.Mkdir(folder, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := site.Stat(folder)
	if err != nil {
		return err
	}
	return backup.Chmod(folder, info.Mode().Perm()|0o700)
}

// backupOf returns the backup path of a directory: its absolute path below the folder in
// the setting BACKUP_DIRECTORY. The default is the folder durable-backup in the folder for
// temporary files.
func backupOf(directory string) (string, error) {
	if directory == "" {
		return "", errors.New("the input must be the path of a directory, as a JSON string")
	}
	directory, err := filepath.Abs(directory)
	if err != nil {
		return "", err
	}
	root := os.Getenv("BACKUP_DIRECTORY")
	if root == "" {
		root = filepath.Join(os.TempDir(), "durable-backup")
	}
	volume := filepath.VolumeName(directory) // "C:" on Windows
	return filepath.Join(root, strings.TrimSuffix(volume, ":"), directory[len(volume):]), nil
}
