package store

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	azruntime "github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
)

// Limits of the requests in flight to one service. An emulator is a single-threaded process, which
// only becomes slower with more requests. The limit for Azure is .NET's, per core
// (DurableTask.AzureStorage/AzureStorageOrchestrationServiceSettings.cs,
// MaxStorageOperationConcurrency).
const (
	emulatorConcurrency = 16
	concurrencyPerCore  = 25
)

// Services contains the clients of the three services. They belong to one account, or the queues
// belong to one account and the rest to another. The clients do not retry: only the caller knows
// whether a request may be repeated.
type Services struct {
	Queues *azqueue.ServiceClient
	Tables *aztables.ServiceClient
	Blobs  *azblob.Client

	// Leases and LeaseBlobs are clients without the limit on requests in flight, so that lease
	// renewals never wait behind other work.
	Leases     *aztables.ServiceClient
	LeaseBlobs *azblob.Client

	QueuePace, TablePace, BlobPace *Pace

	TableEndpoint string
	BlobEndpoint  string

	Usage *Usage
}

// NewServices returns clients of the services, which may belong to two accounts. They send requests
// through transport; if it is nil, through a new HTTP client. missing is called with every response
// that reports a missing queue or table.
func NewServices(queues, tables Account, transport policy.Transporter, meter *metering.Hub, missing func(error)) (*Services, error) {
	if queues.Queue == "" && queues.Blob != "" || tables.Table == "" && tables.Blob != "" {
		return nil, fmt.Errorf("the storage connection has no endpoint for queues or tables: %s not set", cmp.Or(queues.MissingSettings, tables.MissingSettings))
	}
	if queues.Queue == "" {
		return nil, fmt.Errorf("no storage connection")
	}
	if tables.Table == "" {
		return nil, fmt.Errorf("no storage connection for the tracking store")
	}
	bound := max(requestBound(queues.Queue), requestBound(tables.Table))
	if transport == nil {
		transport = newHTTPClient(isEmulator(queues.Queue) || isEmulator(tables.Table), bound)
	}
	usage := &Usage{}
	transport = measured(transport, meter, usage, queues, tables)
	s := &Services{
		Usage:         usage,
		TableEndpoint: tables.Table, BlobEndpoint: tables.Blob,
		QueuePace: NewPace(requestBound(queues.Queue)), TablePace: NewPace(requestBound(tables.Table)), BlobPace: NewPace(requestBound(tables.Blob)),
	}
	watchedTables, watchedBlobs := s.TablePace.WatchTransport(transport), s.BlobPace.WatchTransport(transport)
	var err error
	if s.Queues, err = newQueueService(queues, clientOptions(queues.Queue, s.QueuePace.LimitTransport(s.QueuePace.WatchTransport(transport)), missingPolicy{missing})); err != nil {
		return nil, fmt.Errorf("open queue service: %w", err)
	}
	if s.Tables, err = newTableService(tables, clientOptions(tables.Table, s.TablePace.LimitTransport(watchedTables), substitutionPolicy{}, missingPolicy{missing})); err != nil {
		return nil, fmt.Errorf("open table service: %w", err)
	}
	if s.Leases, err = newTableService(tables, clientOptions(tables.Table, watchedTables, substitutionPolicy{})); err != nil {
		return nil, fmt.Errorf("open table service: %w", err)
	}
	if s.Blobs, s.LeaseBlobs, err = newBlobServices(tables, watchedBlobs, s.BlobPace); err != nil {
		return nil, err
	}
	return s, nil
}

// NewBlobServices returns clients of the blob service only: bounded with and urgent without the limit
// on requests in flight. usage counts their requests. See [NewServices].
func NewBlobServices(account Account, transport policy.Transporter, meter *metering.Hub, usage *Usage) (bounded, urgent *azblob.Client, err error) {
	if account.Blob == "" {
		return nil, nil, fmt.Errorf("no storage connection")
	}
	bound := requestBound(account.Blob)
	if transport == nil {
		transport = newHTTPClient(isEmulator(account.Blob), bound)
	}
	pace := NewPace(bound)
	return newBlobServices(account, pace.WatchTransport(measured(transport, meter, usage, account)), pace)
}

// newBlobServices returns a client with and a client without the limit on requests in flight.
func newBlobServices(account Account, transport policy.Transporter, pace *Pace) (bounded, urgent *azblob.Client, err error) {
	if bounded, err = newBlobService(account, clientOptions(account.Blob, pace.LimitTransport(transport))); err != nil {
		return nil, nil, fmt.Errorf("open blob service: %w", err)
	}
	if urgent, err = newBlobService(account, clientOptions(account.Blob, transport)); err != nil {
		return nil, nil, fmt.Errorf("open blob service: %w", err)
	}
	return bounded, urgent, nil
}

// serviceVersion is the requested version of the queue and blob services. It is the oldest version
// with all used features. The SDKs request their newest version, which other clouds and older
// emulators may reject.
const serviceVersion = "2022-11-02"

// versionPolicy sets serviceVersion.
type versionPolicy struct{}

// Do implements policy.Policy.
func (versionPolicy) Do(req *policy.Request) (*http.Response, error) {
	req.Raw().Header["x-ms-version"] = []string{serviceVersion} // the SDKs set it in lower case
	return req.Next()
}

// missingPolicy reports responses that a queue or a table does not exist.
type missingPolicy struct{ tell func(error) }

// Do implements policy.Policy.
func (p missingPolicy) Do(req *policy.Request) (*http.Response, error) {
	resp, err := req.Next()
	if err == nil && resp.StatusCode == http.StatusNotFound && req.Raw().Context().Value(optionalKey{}) == nil {
		if refusal := azruntime.NewResponseError(resp); IsMissing(refusal) {
			p.tell(refusal)
		}
	}
	return resp, err
}

// AllowMissing returns a context for requests to queues and tables that need not exist.
func AllowMissing(ctx context.Context) context.Context {
	return context.WithValue(ctx, optionalKey{}, true)
}

type optionalKey struct{}

// requestBound returns the maximum number of requests in flight to the service at an endpoint.
func requestBound(endpoint string) int {
	if isEmulator(endpoint) {
		return emulatorConcurrency
	}
	return concurrencyPerCore * runtime.GOMAXPROCS(0)
}

func clientOptions(endpoint string, t policy.Transporter, perCall ...policy.Policy) azcore.ClientOptions {
	return azcore.ClientOptions{
		Transport:       t,
		Retry:           policy.RetryOptions{MaxRetries: -1},
		Telemetry:       policy.TelemetryOptions{ApplicationID: "durablefunctions-go"},
		PerCallPolicies: append([]policy.Policy{responseErrorPolicy{}}, perCall...),
		// Only an emulator gets credentials over plain HTTP.
		InsecureAllowCredentialWithHTTP: isEmulator(endpoint),
	}
}

func newQueueService(c Account, o azcore.ClientOptions) (*azqueue.ServiceClient, error) {
	o.PerCallPolicies = append(o.PerCallPolicies, versionPolicy{})
	options := &azqueue.ClientOptions{ClientOptions: o}
	switch {
	case c.Credential != nil:
		return azqueue.NewServiceClient(c.Queue, markedCredential{c.Credential}, options)
	case c.SAS != "":
		return azqueue.NewServiceClientWithNoCredential(c.Queue+"/?"+c.SAS, options)
	}
	key, err := azqueue.NewSharedKeyCredential(c.Name, c.Key)
	if err != nil {
		return nil, err
	}
	return azqueue.NewServiceClientWithSharedKeyCredential(c.Queue, key, options)
}

func newTableService(c Account, o azcore.ClientOptions) (*aztables.ServiceClient, error) {
	options := &aztables.ClientOptions{ClientOptions: o}
	switch {
	case c.Credential != nil:
		return aztables.NewServiceClient(c.Table, markedCredential{c.Credential}, options)
	case c.SAS != "":
		return aztables.NewServiceClientWithNoCredential(c.Table+"/?"+c.SAS, options)
	}
	key, err := aztables.NewSharedKeyCredential(c.Name, c.Key)
	if err != nil {
		return nil, err
	}
	return aztables.NewServiceClientWithSharedKey(c.Table, key, options)
}

func newBlobService(c Account, o azcore.ClientOptions) (*azblob.Client, error) {
	o.PerCallPolicies = append(o.PerCallPolicies, versionPolicy{})
	options := &azblob.ClientOptions{ClientOptions: o}
	switch {
	case c.Credential != nil:
		return azblob.NewClient(c.Blob, markedCredential{c.Credential}, options)
	case c.SAS != "":
		return azblob.NewClientWithNoCredential(c.Blob+"/?"+c.SAS, options)
	}
	key, err := azblob.NewSharedKeyCredential(c.Name, c.Key)
	if err != nil {
		return nil, err
	}
	return azblob.NewClientWithSharedKeyCredential(c.Blob, key, options)
}

// isEmulator reports whether an endpoint belongs to an emulator, which has the account in the path
// instead of the host name.
func isEmulator(endpoint string) bool {
	u, err := url.Parse(endpoint)
	return err == nil && strings.Trim(u.Path, "/") != ""
}

// newHTTPClient returns the client that all services share. It keeps as many connections as there can
// be requests. It closes idle connections before the server does: Azurite closes them after five
// seconds, and a request at that moment would fail with an unknown outcome.
func newHTTPClient(local bool, bound int) *http.Client {
	idle := 60 * time.Second
	if local {
		idle = 4 * time.Second
	}
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Client{Transport: &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		MaxIdleConnsPerHost: max(4*bound, 64),
		IdleConnTimeout:     idle,
		TLSHandshakeTimeout: 10 * time.Second,
		DisableCompression:  true,
		WriteBufferSize:     64 << 10,
		ReadBufferSize:      64 << 10,
	}}
}

// Health records whether the parts of a storage account are reachable.
type Health interface {
	OK(part string)
	Failed(part string, err error)
}
