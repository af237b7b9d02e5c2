package azurestorage

import (
	"errors"
	"fmt"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/storageop"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"go.opentelemetry.io/otel/metric"
)

// A Connection says where a storage account is and how to prove who is asking.
// Make one with [ParseConnectionString] or [ResolveConnection]. The zero value
// leads nowhere.
type Connection struct {
	account  store.Account
	tracking *store.Account // with the tables and blobs; nil if that is account, too
}

// WithTrackingStore returns a connection to a hub that is in two accounts: its
// queues in c's, its tables and blobs in that of tracking. So .NET divides a hub
// that has a tracking store
// (DurableTask.AzureStorage/Storage/AzureStorageClient.cs, constructor). The
// tables of histories and instances have other names then; see
// [Config.TrackingStoreNamePrefix].
func (c Connection) WithTrackingStore(tracking Connection) Connection {
	c.tracking = &tracking.account
	return c
}

// tables returns the account with the tables and blobs.
func (c Connection) tables() store.Account {
	if c.tracking != nil {
		return *c.tracking
	}
	return c.account
}

// BlobClients are clients of a blob service. They make each request once.
type BlobClients struct {
	Bounded *azblob.Client
	Urgent  *azblob.Client // whose requests never wait for others

	usage store.Usage
}

// BlobClients returns clients of the account's blob service, which send by transport, or
// by a client of their own if it is nil. meter, which may be nil, receives the times of
// requests.
func (c Connection) BlobClients(transport policy.Transporter, meter metric.MeterProvider) (*BlobClients, error) {
	hub, err := metering.NewHub(meter)
	if err != nil {
		return nil, err
	}
	b := &BlobClients{}
	b.Bounded, b.Urgent, err = store.NewBlobServices(c.account, transport, hub, &b.usage)
	return b, err
}

// Usage returns how many requests the clients have made.
func (b *BlobClients) Usage() []provider.Usage {
	return []provider.Usage{b.usage.Blobs.Usage(storageop.Blob)}
}

// ParseConnectionString reads an Azure Storage connection string: one with an
// account and its key, one with endpoints and a shared access signature, or
// "UseDevelopmentStorage=true" for Azurite on its usual ports. Errors do not
// repeat the text, since it holds a secret.
func ParseConnectionString(s string) (Connection, error) {
	a, err := store.ParseAccount(s)
	return Connection{account: a}, err
}

// ResolveConnection finds the connection that the Functions host would use
// under the given name, among settings that lookup knows, such as
// [os.LookupEnv]. "AzureWebJobs" + name is tried before name alone. Each may be
// a connection string, or the beginning of the names of settings for an
// identity-based connection: __accountName or __blobServiceUri,
// __queueServiceUri and __tableServiceUri, with __credential "managedidentity"
// and __clientId for a managed identity, without for the default chain of
// credentials. With __accountName, __endpointSuffix names another cloud, such as
// core.chinacloudapi.cn. A partition log needs no URI but __blobServiceUri. An error says which settings were looked for; it is
// [ErrNoConnection] if none of them is set.
func ResolveConnection(name string, lookup func(string) (string, bool)) (Connection, error) {
	a, names, err := store.ResolveAccount(name, lookup)
	if err == nil && len(names) > 0 {
		err = fmt.Errorf("%w named %q: none of the settings %s is set to a connection string; nor, for an identity, one of these names "+
			"with __accountName added, or with each of __queueServiceUri, __tableServiceUri and __blobServiceUri",
			ErrNoConnection, name, strings.Join(names, ", "))
	}
	return Connection{account: a}, err
}

// ErrNoConnection says that there are no settings for a storage connection.
var ErrNoConnection = errors.New("no storage connection")
