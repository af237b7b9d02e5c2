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

// A Connection is the address of a storage account and the credentials for it. Create it with
// [ParseConnectionString] or [ResolveConnection]. The zero value is not usable.
type Connection struct {
	account  store.Account
	tracking *store.Account // the account of the tables and blobs; nil if it is account
}

// WithTrackingStore returns a connection to a hub in two accounts: the queues are in c's account,
// the tables and blobs in tracking's account. .NET divides a hub with a tracking store in the same
// way (DurableTask.AzureStorage/Storage/AzureStorageClient.cs, constructor). The History and
// Instances tables then have different names; see [Config.TrackingStoreNamePrefix].
func (c Connection) WithTrackingStore(tracking Connection) Connection {
	c.tracking = &tracking.account
	return c
}

// tables returns the account of the tables and blobs.
func (c Connection) tables() store.Account {
	if c.tracking != nil {
		return *c.tracking
	}
	return c.account
}

// BlobClients are clients of a blob service. They never retry a request.
type BlobClients struct {
	Bounded *azblob.Client // limits its concurrent requests; further ones wait
	Urgent  *azblob.Client // its requests never wait for other requests

	usage store.Usage
}

// BlobClients returns clients of the account's blob service. They send requests with transport, or
// with an HTTP client of their own if transport is nil. meter receives the durations of requests;
// it may be nil.
func (c Connection) BlobClients(transport policy.Transporter, meter metric.MeterProvider) (*BlobClients, error) {
	hub, err := metering.NewHub(meter)
	if err != nil {
		return nil, err
	}
	b := &BlobClients{}
	b.Bounded, b.Urgent, err = store.NewBlobServices(c.account, transport, hub, &b.usage)
	return b, err
}

// Usage returns the number of requests that the clients have made.
func (b *BlobClients) Usage() []provider.Usage {
	return []provider.Usage{b.usage.Blobs.Usage(storageop.Blob)}
}

// ParseConnectionString parses an Azure Storage connection string. It accepts a string with an
// account and its key, and a string with endpoints and a shared access signature.
// "UseDevelopmentStorage=true" selects Azurite on its default ports. Errors do not contain the
// string, because it is a secret.
func ParseConnectionString(s string) (Connection, error) {
	a, err := store.ParseAccount(s)
	return Connection{account: a}, err
}

// ResolveConnection returns the connection that the Functions host would use for name. It reads
// settings with lookup, such as [os.LookupEnv], and tries "AzureWebJobs" + name before name.
//
// The value of the setting may be a connection string. For an identity-based connection, the name
// is a prefix instead: set __accountName, or __blobServiceUri, __queueServiceUri and
// __tableServiceUri. A partition log needs only __blobServiceUri. With __accountName,
// __endpointSuffix selects another cloud, such as core.chinacloudapi.cn. Set __credential to
// "managedidentity" and __clientId for a managed identity; without them, the default chain of
// credentials applies.
//
// The error names the settings that were tried. It is [ErrNoConnection] if none of them is set.
func ResolveConnection(name string, lookup func(string) (string, bool)) (Connection, error) {
	a, names, err := store.ResolveAccount(name, lookup)
	if err == nil && len(names) > 0 {
		err = fmt.Errorf("%w named %q: set one of the settings %s to a connection string, or, for an identity, set one of these names "+
			"with the suffix __accountName, or with each of the suffixes __queueServiceUri, __tableServiceUri and __blobServiceUri",
			ErrNoConnection, name, strings.Join(names, ", "))
	}
	return Connection{account: a}, err
}

// ErrNoConnection is the error of [ResolveConnection] if no setting of the connection is set.
var ErrNoConnection = errors.New("no storage connection")
