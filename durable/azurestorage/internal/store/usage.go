package store

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/storageop"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Usage counts the requests to the services of an account.
type Usage struct{ Queues, Tables, Blobs Count }

// of returns the counter of a service.
func (u *Usage) of(service string) *Count {
	switch service {
	case storageop.Queue:
		return &u.Queues
	case storageop.Table:
		return &u.Tables
	}
	return &u.Blobs
}

// A Count is the number of requests to a service, and of failed requests.
type Count struct{ requests, errors atomic.Int64 }

// Usage returns the numbers under the name of a service.
func (c *Count) Usage(service string) provider.Usage {
	return provider.Usage{Part: service, Requests: c.requests.Load(), Errors: c.errors.Load()}
}

// measured returns a transport that counts the requests to the services of the accounts. If m is not
// nil, it also records them in m.
func measured(next policy.Transporter, m *metering.Hub, usage *Usage, accounts ...Account) policy.Transporter {
	t := &measuredTransport{next: next, meter: m, services: map[string]service{}}
	for _, c := range accounts {
		for name, endpoint := range map[string]string{storageop.Queue: c.Queue, storageop.Table: c.Table, storageop.Blob: c.Blob} {
			if u, err := url.Parse(endpoint); err == nil {
				t.services[u.Host] = service{name: name, pathStyle: isEmulator(endpoint), count: usage.of(name)}
			}
		}
	}
	return t
}

type measuredTransport struct {
	next     policy.Transporter
	meter    *metering.Hub
	services map[string]service // by host
}

type service struct {
	name      string
	pathStyle bool // the account name is part of the path
	count     *Count
}

// Do sends req and counts it by its outcome. It also reports the outcome and the duration to the
// meter. It does not send a request whose context has ended already.
func (t *measuredTransport) Do(req *http.Request) (*http.Response, error) {
	if req.Context().Err() != nil {
		return nil, context.Cause(req.Context())
	}
	s := t.services[req.URL.Host]
	if t.meter == nil {
		resp, err := t.next.Do(req)
		s.count.add(req, resp, err)
		return resp, err
	}
	path := strings.TrimPrefix(req.URL.Path, "/")
	if s.pathStyle {
		_, path, _ = strings.Cut(path, "/")
	}
	attempt, _ := req.Context().Value(attemptKey{}).(int)
	operation, began := storageop.Of(s.name, req, path), time.Now()
	resp, err := t.next.Do(req)
	t.meter.RecordOperation(s.name, operation, s.count.add(req, resp, err), time.Since(began), attempt)
	return resp, err
}

// add counts a request and returns its outcome. A request that its caller canceled is not counted as
// an error.
func (c *Count) add(req *http.Request, resp *http.Response, err error) metering.Answer {
	answer := outcomeOf(resp, err)
	if c == nil {
		return answer // the host is not one of the services
	}
	c.requests.Add(1)
	if answer != metering.OK && answer != metering.Conflict && !errors.Is(req.Context().Err(), context.Canceled) {
		c.errors.Add(1)
	}
	return answer
}

func outcomeOf(resp *http.Response, err error) metering.Answer {
	if err != nil {
		return metering.NoAnswer
	}
	status := resp.StatusCode
	switch {
	case status < http.StatusBadRequest:
		return metering.OK
	case status == http.StatusNotFound, status == http.StatusConflict, status == http.StatusPreconditionFailed:
		return metering.Conflict
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		return metering.Throttled
	}
	return metering.Refused
}
