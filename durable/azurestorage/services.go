package azurestorage

import (
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

// Requests in flight to one service. An emulator is one thread of one process
// and only gets slower beyond its figure; for the real service it is .NET's,
// for each core
// (DurableTask.AzureStorage/AzureStorageOrchestrationServiceSettings.cs,
// MaxStorageOperationConcurrency).
const (
	emulatorConcurrency = 16
	concurrencyPerCore  = 25
)

// services are the clients of the three services: of one account, or the queues
// of one and the rest of another. They make each
// request once: whether a failed one may be made again is decided where it is
// known what it was for.
type services struct {
	queues *azqueue.ServiceClient
	tables *aztables.ServiceClient
	blobs  *azblob.Client

	// leases and leaseBlobs are tables and blobs without the bound on requests in
	// flight, so that keeping a partition never waits behind the work on it.
	leases     *aztables.ServiceClient
	leaseBlobs *azblob.Client

	queuePace, tablePace, blobPace *pace

	tableEndpoint string
	blobEndpoint  string
}

func newServices(c Connection, transport policy.Transporter, meter *metering.Hub, missing func(error)) (*services, error) {
	if c.queue == "" {
		return nil, fmt.Errorf("no storage connection")
	}
	store := c.store()
	if store.table == "" {
		return nil, fmt.Errorf("no connection to the tracking store")
	}
	bound := max(requestBound(c.queue), requestBound(store.table))
	if transport == nil {
		transport = newHTTPClient(isEmulator(c.queue) || isEmulator(store.table), bound)
	}
	transport = measured(transport, meter, c)
	s := &services{
		tableEndpoint: store.table, blobEndpoint: store.blob,
		queuePace: newPace(requestBound(c.queue)), tablePace: newPace(requestBound(store.table)), blobPace: newPace(requestBound(store.blob)),
	}
	watchedTables, watchedBlobs := s.tablePace.watch(transport), s.blobPace.watch(transport)
	var err error
	if s.queues, err = newQueueService(c, clientOptions(c.queue, s.queuePace.bound(s.queuePace.watch(transport)), missingPolicy{missing})); err != nil {
		return nil, fmt.Errorf("open queue service: %w", err)
	}
	if s.tables, err = newTableService(store, clientOptions(store.table, s.tablePace.bound(watchedTables), substitutionPolicy{}, missingPolicy{missing})); err != nil {
		return nil, fmt.Errorf("open table service: %w", err)
	}
	if s.leases, err = newTableService(store, clientOptions(store.table, watchedTables, substitutionPolicy{})); err != nil {
		return nil, fmt.Errorf("open table service: %w", err)
	}
	if s.blobs, err = newBlobService(store, clientOptions(store.blob, s.blobPace.bound(watchedBlobs))); err != nil {
		return nil, fmt.Errorf("open blob service: %w", err)
	}
	if s.leaseBlobs, err = newBlobService(store, clientOptions(store.blob, watchedBlobs)); err != nil {
		return nil, fmt.Errorf("open blob service: %w", err)
	}
	return s, nil
}

// missingPolicy tells of answers by which a queue or a table is not there.
type missingPolicy struct{ tell func(error) }

// Do implements policy.Policy.
func (p missingPolicy) Do(req *policy.Request) (*http.Response, error) {
	resp, err := req.Next()
	if err == nil && resp.StatusCode == http.StatusNotFound && req.Raw().Context().Value(optionalKey{}) == nil {
		if refusal := azruntime.NewResponseError(resp); isMissing(refusal) {
			p.tell(refusal)
		}
	}
	return resp, err
}

// optional returns a context whose requests are for what a hub need not have.
func optional(ctx context.Context) context.Context {
	return context.WithValue(ctx, optionalKey{}, true)
}

type optionalKey struct{}

// requestBound returns how many requests may be in flight to the service at an
// endpoint.
func requestBound(endpoint string) int {
	if isEmulator(endpoint) {
		return emulatorConcurrency
	}
	return concurrencyPerCore * runtime.NumCPU()
}

func clientOptions(endpoint string, t policy.Transporter, perCall ...policy.Policy) azcore.ClientOptions {
	return azcore.ClientOptions{
		Transport:       t,
		Retry:           policy.RetryOptions{MaxRetries: -1},
		Telemetry:       policy.TelemetryOptions{ApplicationID: "durablefunctions-go"},
		PerCallPolicies: perCall,
		// Credentials over plain HTTP go to an emulator only.
		InsecureAllowCredentialWithHTTP: isEmulator(endpoint),
	}
}

func newQueueService(c Connection, o azcore.ClientOptions) (*azqueue.ServiceClient, error) {
	options := &azqueue.ClientOptions{ClientOptions: o}
	switch {
	case c.credential != nil:
		return azqueue.NewServiceClient(c.queue, c.credential, options)
	case c.sas != "":
		return azqueue.NewServiceClientWithNoCredential(c.queue+"/?"+c.sas, options)
	}
	key, err := azqueue.NewSharedKeyCredential(c.account, c.key)
	if err != nil {
		return nil, err
	}
	return azqueue.NewServiceClientWithSharedKeyCredential(c.queue, key, options)
}

func newTableService(c Connection, o azcore.ClientOptions) (*aztables.ServiceClient, error) {
	options := &aztables.ClientOptions{ClientOptions: o}
	switch {
	case c.credential != nil:
		return aztables.NewServiceClient(c.table, c.credential, options)
	case c.sas != "":
		return aztables.NewServiceClientWithNoCredential(c.table+"/?"+c.sas, options)
	}
	key, err := aztables.NewSharedKeyCredential(c.account, c.key)
	if err != nil {
		return nil, err
	}
	return aztables.NewServiceClientWithSharedKey(c.table, key, options)
}

func newBlobService(c Connection, o azcore.ClientOptions) (*azblob.Client, error) {
	options := &azblob.ClientOptions{ClientOptions: o}
	switch {
	case c.credential != nil:
		return azblob.NewClient(c.blob, c.credential, options)
	case c.sas != "":
		return azblob.NewClientWithNoCredential(c.blob+"/?"+c.sas, options)
	}
	key, err := azblob.NewSharedKeyCredential(c.account, c.key)
	if err != nil {
		return nil, err
	}
	return azblob.NewClientWithSharedKeyCredential(c.blob, key, options)
}

// isEmulator reports whether an endpoint is one of an emulator: it has the
// account in its path instead of its host name.
func isEmulator(endpoint string) bool {
	u, err := url.Parse(endpoint)
	return err == nil && strings.Trim(u.Path, "/") != ""
}

// newHTTPClient returns the client that all services share. It keeps as many
// connections as there can be requests, and lets idle ones go before the
// server does: Azurite closes them after five seconds, and a request sent at
// that moment would fail with its fate unknown.
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
