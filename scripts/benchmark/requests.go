package main

import (
	"net/http"
	"sync/atomic"
	"time"
)

// requests counts the requests of a hub to its storage account. A nil value counts nothing.
type requests struct {
	http.Client
	made atomic.Int64
}

// newRequests returns an HTTP client with the settings that hubs use for an emulator. It closes idle
// connections before Azurite does, which is after five seconds.
func newRequests() *requests {
	return &requests{Client: http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: 2 * concurrency, IdleConnTimeout: 4 * time.Second, DisableCompression: true,
		WriteBufferSize: 64 << 10, ReadBufferSize: 64 << 10,
	}}}
}

// Do implements policy.Transporter.
func (r *requests) Do(req *http.Request) (*http.Response, error) {
	r.made.Add(1)
	return r.Client.Do(req)
}

func (r *requests) count() int64 {
	if r == nil {
		return 0
	}
	return r.made.Load()
}
