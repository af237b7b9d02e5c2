package handler

import (
	"errors"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
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
