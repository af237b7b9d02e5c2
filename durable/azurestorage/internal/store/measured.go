package store

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/storageop"
)

// measured returns a transport that records what it passes on to the services
// of the accounts.
func measured(next policy.Transporter, m *metering.Hub, accounts ...Account) policy.Transporter {
	if m == nil {
		return next
	}
	t := &measuredTransport{next: next, meter: m, services: map[string]service{}}
	for _, c := range accounts {
		for name, endpoint := range map[string]string{storageop.Queue: c.Queue, storageop.Table: c.Table, storageop.Blob: c.Blob} {
			if u, err := url.Parse(endpoint); err == nil {
				t.services[u.Host] = service{name: name, pathStyle: isEmulator(endpoint)}
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
	pathStyle bool // the account is in the path
}

// Do sends req, and records how long that took and how it was answered.
func (t *measuredTransport) Do(req *http.Request) (*http.Response, error) {
	s, path := t.services[req.URL.Host], strings.TrimPrefix(req.URL.Path, "/")
	if s.pathStyle {
		_, path, _ = strings.Cut(path, "/")
	}
	attempt, _ := req.Context().Value(attemptKey{}).(int)
	operation, began := storageop.Of(s.name, req, path), time.Now()
	resp, err := t.next.Do(req)
	answer := metering.NoAnswer
	if err == nil {
		answer = answerOf(resp.StatusCode)
	}
	t.meter.Operation(s.name, operation, answer, time.Since(began), attempt)
	return resp, err
}

func answerOf(status int) metering.Answer {
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
