package handler

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/taskhub"
)

// A StorageType says what stores the task hub.
type StorageType int

// The storage types.
const (
	AzureStorage StorageType = iota // an Azure Storage account
	Embedded                        // one local file
)

// storageTypes are the names of storage types in host.json, by their values.
var storageTypes = []string{"AzureStorage", "embedded"}

// String returns the name of t in host.json.
func (t StorageType) String() string {
	if t < 0 || int(t) >= len(storageTypes) {
		return fmt.Sprintf("StorageType(%d)", int(t))
	}
	return storageTypes[t]
}

// An EmbeddedConfig says where and how a hub in a local file is kept.
type EmbeddedConfig struct {
	// Path is the name of the file; a relative one is below the Config's Root.
	// Default: [DefaultHubFile] of the hub.
	Path string

	// Relaxed lets what was acknowledged in the last moments be lost when the
	// machine dies, though not when the process does. See [embedded.Config].
	Relaxed bool
}

// DefaultHubFile returns the name of the file of a hub for which none was given.
// It is a file right in the app's root: the Functions host restarts an app in
// whose root a folder appears
// (azure-functions-host: WebHost/FileMonitoringService.cs, OnFileChanged).
func DefaultHubFile(hub string) string { return ".durable-" + hub + ".db" }

// hubFile returns the path of the hub's file.
func (c Config) hubFile() string {
	path := c.Embedded.Path
	if path == "" {
		path = DefaultHubFile(c.Storage.TaskHub)
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(c.Root, path)
	}
	return path
}

// crashFile returns the path of the file in which crashes of this process are counted,
// which is beside the hub's if that is a local file. It is empty if there is no folder
// for it.
func (c Config) crashFile() string {
	if c.StorageType == Embedded {
		return c.hubFile() + ".crashes"
	}
	machine, err := os.Hostname()
	if err != nil {
		return ""
	}
	folder, err := os.UserCacheDir() // others could write to a folder for temporary files
	if err != nil {
		return ""
	}
	folder = filepath.Join(folder, "durablefunctions")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return ""
	}
	return filepath.Join(folder, c.Storage.TaskHub+"."+machine+".crashes") // machines may share the folder
}

// chooseStorage decides what stores the hub, and finds the connection if that is
// a storage account. A hub is in a local file if the settings say so, or if they
// say nothing and there is no connection: neither one that is set nor the name
// of one that should be. Where the platform comes and goes with its disks, a
// file is never taken for want of a connection.
func chooseStorage(cfg *Config, vars settings.Variables) error {
	if cfg.StorageType == Embedded {
		return nil
	}
	connection, err := azurestorage.ResolveConnection(cfg.ConnectionName, vars.Connection)
	if err == nil {
		cfg.Connection, err = cfg.withTrackingStore(connection, vars)
		return err
	}
	_, chosen := cfg.sources[storageTypePath]
	_, onAzure := vars.Lookup("WEBSITE_INSTANCE_ID")
	if errors.Is(err, azurestorage.ErrNoConnection) && !chosen && !onAzure && settings.SameConnection(cfg.ConnectionName, DefaultConnectionName) &&
		cfg.TrackingStoreConnectionName == "" {
		cfg.StorageType = Embedded
		return nil
	}
	return fmt.Errorf("%s: %w", connectionNamePath, err)
}

// withTrackingStore returns a connection that leads to the account of its own
// for tables and blobs, too, if there is one
// (WebJobs.Extensions.DurableTask/AzureStorageDurabilityProviderFactory.cs,
// GetAzureStorageOrchestrationServiceSettings).
func (c Config) withTrackingStore(connection azurestorage.Connection, vars settings.Variables) (azurestorage.Connection, error) {
	if c.TrackingStoreConnectionName == "" {
		return connection, nil
	}
	tracking, err := azurestorage.ResolveConnection(c.TrackingStoreConnectionName, vars.Connection)
	if err != nil {
		return azurestorage.Connection{}, fmt.Errorf("%s: %w", trackingConnectionPath, err)
	}
	return connection.WithTrackingStore(tracking), nil
}

// openProvider returns what stores the hub. It does no I/O.
func (s *Server) openProvider() (provider.Provider, error) {
	switch {
	case s.cfg.Provider != nil:
		return s.cfg.Provider, nil
	case s.cfg.StorageType == Embedded:
		return taskhub.NewFile(s.cfg.hubFile(), s.cfg.embeddedConfig()), nil
	}
	return azurestorage.Open(s.cfg.Connection, s.cfg.Storage)
}

// storageNotice says where the hub is, and how it could be elsewhere.
func (c Config) storageNotice() string {
	if c.StorageType != Embedded || c.Provider != nil {
		return ""
	}
	mode := "every acknowledged write is on the disk"
	if c.Embedded.Relaxed {
		mode = "relaxed: the death of the machine takes the last moments away"
	}
	return fmt.Sprintf("The task hub is in the local file %s (%s). To keep it in Azure Storage, set the connection AzureWebJobsStorage; "+
		"`hub copy embedded azurestorage` takes what is in the file along.", c.hubFile(), mode)
}

// embeddedConfig returns the configuration of the hub in a local file.
func (c Config) embeddedConfig() embedded.Config {
	return embedded.Config{Relaxed: c.Embedded.Relaxed, DrainTimeout: c.Storage.DrainTimeout, Logger: c.Storage.Logger}
}
