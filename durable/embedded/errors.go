package embedded

import (
	"errors"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/embedded/internal/hubfile"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
)

// ErrClosed is returned by a [Hub] after [Hub.Close].
var ErrClosed = logstore.ErrClosed

// HeldError is the error of [Open] if another process has the file open, or this process has opened
// it before.
type HeldError struct {
	Path string
	// Holder describes the process that has the file open, such as "process 4711 on host edge-1".
	// It is empty if unknown.
	Holder string
	// Contact is the [Config.Contact] of that process.
	Contact string
}

// Error names the file and its holder.
func (e *HeldError) Error() string {
	holder := e.Holder
	if holder == "" {
		holder = "another process"
	}
	return fmt.Sprintf("task hub %s is in use by %s; only one process at a time can open it", e.Path, holder)
}

// FormatError is the error of a file whose format is newer than this package. The file was not
// changed.
type FormatError struct {
	Path      string
	Version   uint64 // of the file
	Supported uint64 // newest version that this package knows
}

// Error names the file and both versions.
func (e *FormatError) Error() string {
	return fmt.Sprintf("task hub %s has format version %d; this program knows versions up to %d: use a newer program", e.Path, e.Version, e.Supported)
}

// NetworkFileError is the error of a file on a network file system. No file was created or changed.
type NetworkFileError struct {
	Path       string
	FileSystem string // for example NFS
}

// Error names the file and the required action.
func (e *NetworkFileError) Error() string {
	return fmt.Sprintf("task hub %s is on a network file system (%s), where locks and memory maps are not safe: "+
		"use a path on a local disk, or a storage account; to force it, set storageProvider.allowNetworkFile (Config.AllowNetworkFile)", e.Path, e.FileSystem)
}

// CorruptError is the error of a file that is damaged or not a task hub. The file was not changed.
type CorruptError struct {
	Path  string
	Cause error
}

// Error names the file and the cause.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("task hub %s is damaged or not a task hub: %v", e.Path, e.Cause)
}

// Unwrap returns the cause.
func (e *CorruptError) Unwrap() error { return e.Cause }

// fileError converts an error of the package hubfile to a public error type.
func fileError(path string, err error) error {
	if held, ok := errors.AsType[*hubfile.HeldError](err); ok {
		return &HeldError{Path: path, Holder: held.Holder, Contact: held.Contact}
	}
	if format, ok := errors.AsType[*hubfile.VersionError](err); ok {
		return &FormatError{Path: path, Version: format.Version, Supported: format.Supported}
	}
	if network, ok := errors.AsType[*hubfile.NetworkError](err); ok {
		return &NetworkFileError{Path: path, FileSystem: network.FileSystem}
	}
	if corrupt, ok := errors.AsType[*hubfile.CorruptError](err); ok {
		return &CorruptError{Path: path, Cause: corrupt.Cause}
	}
	if errors.As(err, new(*hubfile.PanicError)) || errors.As(err, new(*logstore.DamageError)) {
		return &CorruptError{Path: path, Cause: err}
	}
	return err
}

// Delete deletes the files of the task hub at path without checking them. It fails with a
// *[HeldError] if a process has the hub open, and with [io/fs.ErrNotExist] if the file does not exist.
func Delete(path string) error {
	if err := hubfile.Delete(path); err != nil {
		return fmt.Errorf("delete task hub: %w", fileError(path, err))
	}
	return nil
}
