package main

import (
	"net/http"
	"sync/atomic"
	"time"
)

// requests counts those that a hub makes to its storage account. A nil one
// counts nothing.
type requests struct {
	http.Client
	made atomic.Int64
}

// newRequests returns a client as hubs have it that use an emulator: idle
// connections go before Azurite closes them, after five seconds.
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
