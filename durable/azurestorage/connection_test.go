package azurestorage

import (
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
)

func TestParseConnectionString(t *testing.T) {
	for name, tt := range map[string]struct {
		text               string
		queue, table, blob string
		account, key, sas  string
		wantErr            string
	}{
		"Azurite by its short name": {
			text:  "UseDevelopmentStorage=true",
			queue: "http://127.0.0.1:10001/devstoreaccount1", table: "http://127.0.0.1:10002/devstoreaccount1", blob: "http://127.0.0.1:10000/devstoreaccount1",
			account: store.DevelopmentAccount, key: store.DevelopmentKey,
		},
		"Azurite elsewhere": {
			text:  "UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://azurite",
			queue: "http://azurite:10001/devstoreaccount1", table: "http://azurite:10002/devstoreaccount1", blob: "http://azurite:10000/devstoreaccount1",
			account: store.DevelopmentAccount, key: store.DevelopmentKey,
		},
		"an account and its key": {
			text:  "DefaultEndpointsProtocol=https;AccountName=acc;AccountKey=a2V5PQ==;EndpointSuffix=core.chinacloudapi.cn",
			queue: "https://acc.queue.core.chinacloudapi.cn", table: "https://acc.table.core.chinacloudapi.cn", blob: "https://acc.blob.core.chinacloudapi.cn",
			account: "acc", key: "a2V5PQ==",
		},
		"names in any case, blanks, a semicolon at the end": {
			text:  " accountname=acc ; ACCOUNTKEY=a2V5 ;; ",
			queue: "https://acc.queue.core.windows.net", table: "https://acc.table.core.windows.net", blob: "https://acc.blob.core.windows.net",
			account: "acc", key: "a2V5",
		},
		"endpoints and a signature": {
			text:  "QueueEndpoint=https://q.example/;TableEndpoint=https://t.example;BlobEndpoint=https://b.example;SharedAccessSignature=?sv=1&sig=a%3D",
			queue: "https://q.example", table: "https://t.example", blob: "https://b.example", sas: "sv=1&sig=a%3D",
		},
		"nothing":                      {text: " ", wantErr: "empty"},
		"no fields":                    {text: "hello", wantErr: "Name=value"},
		"no secret":                    {text: "AccountName=acc", wantErr: "neither AccountKey nor SharedAccessSignature"},
		"an invalid key":               {text: "AccountName=acc;AccountKey=s3cret!", wantErr: "AccountKey is not Base64"},
		"a key without an account":     {text: "AccountKey=a2V5", wantErr: "no AccountName"},
		"a signature without endpoint": {text: "SharedAccessSignature=x;QueueEndpoint=https://q.example", wantErr: "neither TableEndpoint, BlobEndpoint nor AccountName"},
		"an invalid endpoint":          {text: "AccountName=a;AccountKey=a2V5;BlobEndpoint=blob", wantErr: `BlobEndpoint "blob"`},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := ParseConnectionString(tt.text)
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("error %v, want %s", err, tt.wantErr)
				}
				if strings.Contains(err.Error(), "s3cret") {
					t.Errorf("the error contains the key: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if a := c.account; a.Queue != tt.queue || a.Table != tt.table || a.Blob != tt.blob || a.Name != tt.account || a.Key != tt.key || a.SAS != tt.sas {
				t.Errorf("connection is %+v", c)
			}
		})
	}
}

func TestResolveConnection(t *testing.T) {
	const dev = "UseDevelopmentStorage=true"
	for name, tt := range map[string]struct {
		connection string
		settings   map[string]string
		wantQueue  string
		wantErr    string
	}{
		"the host's storage":                    {"AzureWebJobsStorage", map[string]string{"AzureWebJobsStorage": dev}, "http://127.0.0.1:10001/devstoreaccount1", ""},
		"the host's storage without the prefix": {"Storage", map[string]string{"AzureWebJobsStorage": dev}, "http://127.0.0.1:10001/devstoreaccount1", ""},
		"another setting":                       {"Mine", map[string]string{"Mine": dev}, "http://127.0.0.1:10001/devstoreaccount1", ""},
		"the name with the prefix comes first":  {"Mine", map[string]string{"Mine": "AccountName=b;AccountKey=a2V5", "AzureWebJobsMine": "AccountName=a;AccountKey=a2V5"}, "https://a.queue.core.windows.net", ""},
		"an identity by account":                {"Mine", map[string]string{"Mine__accountName": "acc"}, "https://acc.queue.core.windows.net", ""},
		"an identity in another cloud": {
			"Mine",
			map[string]string{"Mine__accountName": "acc", "Mine__endpointSuffix": "core.chinacloudapi.cn"},
			"https://acc.queue.core.chinacloudapi.cn", "",
		},
		"a managed identity": {"Mine", map[string]string{
			"AzureWebJobsMine__queueServiceUri": "https://q.example/", "AzureWebJobsMine__tableServiceUri": "https://t.example",
			"AzureWebJobsMine__blobServiceUri": "https://b.example", "AzureWebJobsMine__credential": "managedidentity", "AzureWebJobsMine__clientId": "id",
		}, "https://q.example", ""},
		"nothing":                      {"Mine", nil, "", `no storage connection named "Mine": set one of the settings AzureWebJobsMine, Mine to a connection string`},
		"incomplete endpoints":         {"Mine", map[string]string{"Mine__queueServiceUri": "https://q.example"}, "", "Mine__tableServiceUri, Mine__blobServiceUri not set"},
		"a credential of unknown kind": {"Mine", map[string]string{"Mine__accountName": "a", "Mine__credential": "luck"}, "", `credential is "luck"`},
		"an invalid connection string": {"Mine", map[string]string{"Mine": "oops"}, "", "setting Mine: connection string"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := ResolveConnection(tt.connection, func(name string) (string, bool) {
				value, ok := tt.settings[name]
				return value, ok
			})
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("error %v, want %s", err, tt.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if c.account.Queue != tt.wantQueue {
				t.Errorf("queue endpoint %s, want %s", c.account.Queue, tt.wantQueue)
			}
			if _, err := Open(c, Config{}); err != nil {
				t.Errorf("open: %v", err)
			}
		})
	}
}

func TestOpen_RejectsTheZeroConnection(t *testing.T) {
	if _, err := Open(Connection{}, Config{}); err == nil {
		t.Error("the zero Connection was opened")
	}
}

// A hub in queues and tables returns an error that names the missing settings. A hub in blobs needs
// only the blob endpoint.
func TestResolveConnection_NeedsOnlyTheBlobEndpointForAHubInBlobs(t *testing.T) {
	for settings, missing := range map[string]string{
		"Mine__blobServiceUri=https://b.example":                                  "Mine__queueServiceUri, Mine__tableServiceUri",
		"Mine=BlobEndpoint=https://b.example;SharedAccessSignature=sv=1&sig=a%3D": "QueueEndpoint, TableEndpoint",
	} {
		c, err := ResolveConnection("Mine", func(name string) (string, bool) {
			value, found := strings.CutPrefix(settings, name+"=")
			if !found {
				return "", false
			}
			return value, true
		})
		if err != nil {
			t.Errorf("%s: %v", settings, err)
			continue
		}
		if _, err := c.BlobClients(nil, nil); err != nil {
			t.Errorf("%s: blob clients: %v", settings, err)
		}
		if _, err := Open(c, Config{}); err == nil || !strings.Contains(err.Error(), missing) {
			t.Errorf("%s: %v, want an error that names %s", settings, err, missing)
		}
	}
}
