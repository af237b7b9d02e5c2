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

// BackupSiteContent is fan-out and fan-in: it copies all files below a
// directory in parallel and returns the total of their bytes. The copies go
// where [backupOf] says.
func BackupSiteContent(ctx *durable.Context, directory string) (int64, error) {
	files, err := durable.CallActivity(ctx, GetFileList, directory).Await()
	if err != nil {
		return 0, err
	}
	copies := make([]*durable.Task[int64], len(files))
	for i, file := range files {
		copies[i] = durable.CallActivity(ctx, CopyFile, SiteFile{directory, file})
	}
	sizes, err := durable.AwaitAll(copies...)
	if err != nil {
		return 0, err
	}
	var total int64
	for _, size := range sizes {
		total += size
	}
	return total, nil
}

// A SiteFile is a file and the directory that it is copied from.
type SiteFile struct {
	Directory string `json:"directory"`
	File      string `json:"file"` // relative to Directory, with slashes
}

// GetFileList returns the names of all regular files below a directory,
// relative to it and sorted. Links are left out, so that nothing outside of the
// directory is copied.
func GetFileList(_ context.Context, directory string) ([]string, error) {
	target, err := backupOf(directory)
	if err != nil {
		return nil, err
	}
	if inside, err := filepath.Rel(directory, target); err == nil && filepath.IsLocal(inside) {
		return nil, fmt.Errorf("back up %s: its copy would be inside of it, at %s", directory, target)
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

// CopyFile copies one file and returns its size in bytes. As an activity can be
// run twice, even at the same time on two machines, each run writes a file of
// its own and then puts it in the place of the copy.
func CopyFile(_ context.Context, f SiteFile) (size int64, err error) {
	target, err := backupOf(f.Directory)
	if err != nil {
		return 0, err
	}
	// A root refuses names that lead out of it, by ".." or by a link.
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

// makeTarget makes the folder of a site's backup. It has the permissions of the site;
// folders made above it are private.
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

// makeFolders makes a folder and those above it in a backup, with the modes that
// they have in the site; only the owner can always write.
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

// backupOf returns the place of a directory's backup: its own absolute path,
// below the folder that the setting BACKUP_DIRECTORY names, or durable-backup
// in the folder for temporary files.
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
