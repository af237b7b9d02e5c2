package handler

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/hubcli"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/taskhub"
)

// A hubCopy copies a task hub between two stores.
type hubCopy struct{ Config }

// A hubPlace is an open source or target of a copy.
type hubPlace struct {
	hub provider.Portable
	// finish closes the hub. If complete is false, a local file that was written is deleted; otherwise
	// it gets its final name.
	finish func(complete bool) error
}

const (
	reportEvery = 2 * time.Second // progress of a copy
	retryEvery  = time.Second     // while a worker uses a hub
)

func (c hubCopy) run(ctx context.Context, r hubcli.CopyRequest) (fmt.Stringer, error) {
	if r.TaskHub != "" {
		if err := azurestorage.ValidateHubName(r.TaskHub); err != nil {
			return nil, err
		}
		c.Embedded.Path = c.hubFile() // resolve it before the name of the hub in Azure Storage changes
		c.Storage.TaskHub = r.TaskHub
	}
	if err := c.checkDistinct(r.From, r.To); err != nil {
		return nil, err
	}
	totals, _, err := c.copyWhenFree(ctx, r)
	return totals, err
}

// copyWhenFree copies a hub once no worker uses the source and the target. It retries for r.Wait. It
// returns the duration of the successful attempt.
func (c hubCopy) copyWhenFree(ctx context.Context, r hubcli.CopyRequest) (totals provider.Totals, took time.Duration, err error) {
	waiting := false
	for deadline := time.Now().Add(r.Wait); ; {
		began := time.Now()
		totals, err := c.once(ctx, r)
		if c.adoptSourceCount(err, r) {
			continue
		}
		if !isBusy(err) {
			return totals, time.Since(began), err
		}
		if time.Now().After(deadline) {
			return totals, 0, &hubcli.UnavailableError{Err: err}
		}
		if !waiting {
			waiting = true
			r.Progress(fmt.Sprintf("%v; waiting up to %v until it is free", err, r.Wait))
		}
		if !taskhub.Pause(ctx, retryEvery) {
			return totals, 0, ctx.Err()
		}
	}
}

// backup copies the configured hub into a new local file. For a hub in a local file it returns
// [hubcli.ErrUseManagementAPI]: the process that holds the file writes the backup.
func (c hubCopy) backup(ctx context.Context, r hubcli.CopyRequest) (done hubcli.BackupResult, err error) {
	switch c.StorageType {
	case Embedded:
		if _, err := os.Stat(c.hubFile()); err != nil {
			return done, fileError(err)
		}
		return done, hubcli.ErrUseManagementAPI
	case AzureStorage:
		r.From = "azurestorage"
	case PartitionLog:
		r.From, r.Running = "partitionlog", true
	}
	done.Path, r.To = r.To, "embedded:"+r.To
	_, took, err := c.copyWhenFree(ctx, r)
	if err != nil {
		return done, err
	}
	if !r.Running {
		done.Pause = took.Seconds()
	}
	info, err := os.Stat(done.Path)
	if err != nil {
		return done, err
	}
	done.Bytes = info.Size()
	return done, nil
}

func (c hubCopy) once(ctx context.Context, r hubcli.CopyRequest) (totals provider.Totals, err error) {
	from, err := c.source(r.From)
	if err != nil {
		return totals, fmt.Errorf("open %s: %w", r.From, err)
	}
	defer func() { err = errors.Join(err, from.finish(err == nil)) }()
	if logs, is := from.hub.(*partitionlog.Hub); is && r.Running {
		from.hub = runningHub{logs}
	}
	to, err := c.target(ctx, r.To)
	if err != nil {
		return totals, fmt.Errorf("open %s: %w", r.To, err)
	}
	var reported time.Time
	began := time.Now()
	totals, err = provider.CopyHub(ctx, copySource{from.hub}, to.hub, provider.ExportOptions{IgnoreHidden: r.IgnoreHidden, Notice: r.Progress}, func(t provider.Totals) {
		if now := time.Now(); now.Sub(began) > reportEvery && now.Sub(reported) > reportEvery {
			reported = now
			r.Progress(fmt.Sprintf("copied %v …", t))
		}
	})
	err = c.withAdvice(err, totals, r.To)
	return totals, errors.Join(err, to.finish(err == nil))
}

// errIncomplete is the error of a copy that failed after it had written to a hub in a storage account.
var errIncomplete = errors.New("the copy is incomplete: delete it with `hub delete`, or copy to a hub of another name")

// withAdvice adds advice to the error of a copy. totals counts the items that were written to the target.
func (c hubCopy) withAdvice(err error, totals provider.Totals, to string) error {
	kind, _, _ := c.place(to) // validated by checkDistinct
	switch {
	case errors.Is(err, provider.ErrHubNotEmpty):
		return fmt.Errorf("%w: copy to a hub of another name, or delete it first with `hub delete`", err)
	case err != nil && kind != Embedded && totals != (provider.Totals{}):
		return fmt.Errorf("%w; %w", err, errIncomplete)
	}
	return err
}

// isBusy reports whether a copy with this error can be retried when no worker uses the hubs. A worker
// that starts during the copy makes it fail, too; then the target is not empty, unless it is a file.
func isBusy(err error) bool {
	return (errors.Is(err, provider.ErrHubBusy) || taskhub.IsHeld(err)) && !errors.Is(err, errIncomplete)
}

// runningHub is a hub in partition logs that workers use during the copy.
type runningHub struct{ *partitionlog.Hub }

// Export implements [provider.Portable].
func (h runningHub) Export(ctx context.Context, w provider.HubWriter, _ provider.ExportOptions) error {
	return h.ExportRunning(ctx, w)
}

// place parses FROM or TO into a storage type and the name of a file or a connection.
func (c hubCopy) place(text string) (kind StorageType, name string, err error) {
	word, name, _ := strings.Cut(text, ":")
	switch strings.ToLower(word) {
	case "embedded":
		if name == "" {
			return Embedded, c.hubFile(), nil
		}
		return Embedded, name, nil
	case "azurestorage", "azure":
		if name == "" {
			name = c.ConnectionName
		}
		return AzureStorage, name, nil
	case "partitionlog":
		if name == "" {
			name = c.ConnectionName
		}
		return PartitionLog, name, nil
	}
	return 0, "", fmt.Errorf("%q is neither embedded nor azurestorage nor partitionlog", text)
}

// checkDistinct returns an error if from and to are the same hub.
func (c hubCopy) checkDistinct(from, to string) error {
	fromKind, source, err := c.place(from)
	if err != nil {
		return err
	}
	toKind, target, err := c.place(to)
	if err != nil {
		return err
	}
	same := fromKind == toKind
	if same && fromKind != Embedded {
		same = settings.SameConnection(source, target)
	} else if same {
		same = isOneFile(source, target) || isOneFile(source, unfinished(target))
	}
	if same {
		return fmt.Errorf("%s and %s are the same task hub; name two different hubs, as in `hub copy embedded embedded:FILE`", from, to)
	}
	return nil
}

func isOneFile(a, b string) bool {
	first, err := os.Stat(a)
	if err != nil {
		return false
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second)
}

// unfinished returns the name of a hub's file during a copy.
func unfinished(path string) string { return path + ".copying" }

func (c hubCopy) source(text string) (hubPlace, error) {
	kind, name, err := c.place(text)
	if err != nil {
		return hubPlace{}, err
	}
	if kind != Embedded {
		return c.accountPlace(kind, name)
	}
	if _, err := os.Stat(name); err != nil {
		return hubPlace{}, err
	}
	hub, err := embedded.Open(name, c.embeddedConfig())
	if err != nil {
		return hubPlace{}, err
	}
	return hubPlace{hub, func(bool) error { return hub.Close() }}, nil
}

// target opens the hub to copy to.
func (c hubCopy) target(ctx context.Context, text string) (hubPlace, error) {
	kind, name, err := c.place(text)
	if err != nil {
		return hubPlace{}, err
	}
	if kind != Embedded {
		return c.accountPlace(kind, name)
	}
	if err := c.removeEmpty(ctx, name); err != nil {
		return hubPlace{}, err
	}
	partial := unfinished(name)
	if err := embedded.Delete(partial); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return hubPlace{}, err
	}
	hub, err := embedded.Open(partial, c.embeddedConfig())
	if err != nil {
		return hubPlace{}, err
	}
	return hubPlace{hub, func(complete bool) error {
		if err := hub.Close(); err != nil {
			return err
		}
		if complete {
			return os.Rename(partial, name)
		}
		return embedded.Delete(partial)
	}}, nil
}

// removeEmpty deletes the hub's file at path if it exists and contains nothing. It fails if the hub
// contains anything.
func (c hubCopy) removeEmpty(ctx context.Context, path string) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	hub, err := embedded.Open(path, c.embeddedConfig())
	if err != nil {
		return err
	}
	totals, err := hub.Totals(ctx)
	if err = errors.Join(err, hub.Close()); err != nil {
		return err
	}
	if totals != (provider.Totals{}) {
		return fmt.Errorf("%s has %v: %w", path, totals, provider.ErrHubNotEmpty)
	}
	return embedded.Delete(path)
}

// adoptSourceCount handles an error about the partition count of the source. If source and target have
// different types, the configured count applies only to the target. adoptSourceCount then takes the source's
// actual count into c and returns true; the caller retries.
func (c *hubCopy) adoptSourceCount(err error, r hubcli.CopyRequest) bool {
	from, _, _ := c.place(r.From) // validated by checkDistinct
	to, _, _ := c.place(r.To)
	_, ofSource := errors.AsType[*sourceError](err)
	wrong, isCount := errors.AsType[*azurestorage.PartitionCountError](err)
	if from == to || !ofSource || !isCount || wrong.Existing == 0 {
		return false
	}
	count := &c.Storage.PartitionCount
	if from == PartitionLog {
		count = &c.PartitionLog.PartitionCount
	}
	if *count == wrong.Existing {
		return false
	}
	*count = wrong.Existing
	return true
}

// copySource is the hub to copy from. It wraps its errors in [sourceError].
type copySource struct{ provider.Portable }

func (s copySource) Export(ctx context.Context, w provider.HubWriter, o provider.ExportOptions) error {
	if err := s.Portable.Export(ctx, w, o); err != nil {
		return &sourceError{err}
	}
	return nil
}

// sourceError is an error of the export, that is of the source or of the writer that it exports to.
type sourceError struct{ error }

func (e *sourceError) Unwrap() error { return e.error }

// accountPlace opens a hub in a storage account.
func (c hubCopy) accountPlace(kind StorageType, connection string) (hubPlace, error) {
	vars := settings.NewVariables(os.Environ())
	resolved, err := azurestorage.ResolveConnection(connection, vars.Connection)
	if err != nil {
		return hubPlace{}, err
	}
	if kind == PartitionLog {
		hub, err := partitionlog.Open(resolved, c.partitionLogConfig())
		if err != nil {
			return hubPlace{}, err
		}
		return hubPlace{hub, func(bool) error { return hub.Close() }}, nil
	}
	if settings.SameConnection(connection, c.ConnectionName) {
		// A hub in another account is assumed to have no separate tracking store.
		if resolved, err = c.withTrackingStore(resolved, vars); err != nil {
			return hubPlace{}, err
		}
	}
	hub, err := azurestorage.Open(resolved, c.Storage)
	if err != nil {
		return hubPlace{}, err
	}
	return hubPlace{hub, func(bool) error { return nil }}, nil
}
