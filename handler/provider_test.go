package handler

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
)

// The account for the tables is resolved like the account for the queues, by a connection string or an
// identity.
func TestConfig_TablesCanHaveAnAccountOfTheirOwn(t *testing.T) {
	t.Parallel()
	for _, setting := range []string{
		"AzureWebJobsTables=DefaultEndpointsProtocol=https;AccountName=second;AccountKey=a2V5",
		"Tables__accountName=second",
		"ConnectionStrings__Tables=DefaultEndpointsProtocol=https;AccountName=second;AccountKey=a2V5",
	} {
		cfg := configured(t, durableTaskJSON(`"storageProvider": {"trackingStoreConnectionName": "Tables"}`), storageSetting, setting)
		if cfg.Problem != nil {
			t.Fatalf("%s: %v", setting, cfg.Problem)
		}
		alone, err := azurestorage.ParseConnectionString(strings.SplitN(storageSetting, "=", 2)[1])
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Connection == alone {
			t.Errorf("%s: the connection leads to one account only", setting)
		}
		if _, err := azurestorage.Open(cfg.Connection, cfg.Storage); err != nil {
			t.Errorf("%s: %v", setting, err)
		}
	}
}

func TestConfig_TheHubIsInAFileIfNoStorageIsConfigured(t *testing.T) {
	t.Parallel()
	const embeddedType = `"storageProvider": {"type": "embedded"}`
	for _, tt := range []struct {
		name, hostJSON string
		environ        []string
		want           StorageType
		problem        string
	}{
		{name: "nothing is said", hostJSON: "{}", want: Embedded},
		{name: "an empty connection is none", hostJSON: "{}", environ: []string{"AzureWebJobsStorage="}, want: Embedded},
		{name: "the usual connection is named and not set", hostJSON: durableTaskJSON(`"storageProvider": {"connectionName": "AzureWebJobsStorage"}`), want: Embedded},
		{name: "a connection is set", hostJSON: "{}", environ: []string{storageSetting}, want: AzureStorage},
		{name: "the file is asked for", hostJSON: durableTaskJSON(embeddedType), environ: []string{storageSetting}, want: Embedded},
		{name: "an identity is set", hostJSON: "{}", environ: []string{"AzureWebJobsStorage__accountName=acct"}, want: AzureStorage},
		{
			name: "a connection of one's own is named and not set", hostJSON: durableTaskJSON(`"storageProvider": {"connectionName": "Mine"}`),
			problem: `no storage connection named "Mine"`,
		},
		{
			name: "Azure Storage is asked for and there is no connection", hostJSON: durableTaskJSON(`"storageProvider": {"type": "AzureStorage"}`),
			problem: `no storage connection named "Storage"`,
		},
		{
			name: "a connection is wrong", hostJSON: "{}", environ: []string{"AzureWebJobsStorage=nonsense"},
			problem: "setting AzureWebJobsStorage: connection string",
		},
		{
			name: "the app runs on Azure, where disks come and go", hostJSON: "{}", environ: []string{"WEBSITE_INSTANCE_ID=7"},
			problem: `no storage connection named "Storage"`,
		},
		{
			name: "there is an account for the tables and none for the queues", environ: []string{"AzureWebJobsTables=UseDevelopmentStorage=true"},
			hostJSON: durableTaskJSON(`"storageProvider": {"trackingStoreConnectionName": "Tables"}`), problem: `no storage connection named "Storage"`,
		},
		{
			name: "the account for the tables is not set", environ: []string{storageSetting},
			hostJSON: durableTaskJSON(`"storageProvider": {"trackingStoreConnectionName": "Tables"}`),
			problem:  `trackingStoreConnectionName: no storage connection named "Tables": set one of the settings AzureWebJobsTables, Tables to a connection string`,
		},
		{name: "the file is asked for on Azure", hostJSON: durableTaskJSON(embeddedType), environ: []string{"WEBSITE_INSTANCE_ID=7"}, want: Embedded},
	} {
		found, err := settings.ParseHostJSON([]byte(tt.hostJSON))
		if err != nil {
			t.Fatal(err)
		}
		cfg := configure(settings.Environment{}, found, tt.environ)
		switch {
		case tt.problem != "":
			if cfg.Problem == nil || !strings.Contains(cfg.Problem.Error(), tt.problem) {
				t.Errorf("%s: problem is %v, want %s", tt.name, cfg.Problem, tt.problem)
			}
		case cfg.Problem != nil || cfg.StorageType != tt.want:
			t.Errorf("%s: the hub is in %v, problem %v, want %v", tt.name, cfg.StorageType, cfg.Problem, tt.want)
		}
		if cfg.StorageType == Embedded && cfg.Connection != (azurestorage.Connection{}) {
			t.Errorf("%s: there is a connection besides the file", tt.name)
		}
	}
}

func TestConfig_TheFileIsDirectlyInTheAppsRoot(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	elsewhere := filepath.Join(t.TempDir(), "x.db")
	for path, want := range map[string]string{
		"":             filepath.Join(root, ".durable-MyHub.db"),
		"data/hub.db":  filepath.Join(root, "data", "hub.db"),
		elsewhere:      elsewhere,
		"../above.db":  filepath.Join(filepath.Dir(root), "above.db"),
		"./other.file": filepath.Join(root, "other.file"),
	} {
		cfg := Config{Root: root, StorageType: Embedded, Embedded: EmbeddedConfig{Path: path}, Storage: azurestorage.Config{TaskHub: "MyHub"}}
		if got := cfg.hubFile(); got != want {
			t.Errorf("%q: the file is %s, want %s", path, got, want)
		}
	}
}
