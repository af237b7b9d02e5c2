package azurestorage

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"golang.org/x/sync/errgroup"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/storageop"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// measured returns a transport that records what it passes on to the services
// of a connection.
func measured(next policy.Transporter, m *metering.Hub, c Connection) policy.Transporter {
	if m == nil {
		return next
	}
	t := &measuredTransport{next: next, meter: m, services: map[string]service{}}
	for _, c := range []Connection{c, c.store()} {
		for name, endpoint := range map[string]string{storageop.Queue: c.queue, storageop.Table: c.table, storageop.Blob: c.blob} {
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

// attemptKey is where a context says which attempt at an operation it is for, if
// that is not the first.
type attemptKey struct{}

// attempts returns the context of the n-th attempt.
func attempts(ctx context.Context, n int) context.Context {
	if n == 1 {
		return ctx
	}
	return context.WithValue(ctx, attemptKey{}, n)
}

// heldWhy returns why a message is held back: it cannot be read, or it cannot be
// taken now.
func (d *delivery) heldWhy() metering.Held {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.env == nil {
		return metering.Unreadable
	}
	return metering.Early
}

// observeQueues has the metrics tell what waits in the queues that this worker
// reads, until stop is called.
func (h *TaskHub) observeQueues() (stop func()) {
	unregister, err := h.meter.Observe(h.observe)
	if err != nil {
		h.log.Warn("the metrics do not tell what waits in the queues", "error", err)
		return func() {}
	}
	return func() { _ = unregister() } // it cannot be undone twice
}

// observeTime bounds how long one look at the queues takes.
const observeTime = 10 * time.Second

// observe looks into the queues that this worker reads.
func (h *TaskHub) observe(ctx context.Context) ([]metering.QueueState, error) {
	ctx, cancel := context.WithTimeout(ctx, observeTime)
	defer cancel()
	queues := []*messageQueue{h.workItems}
	for _, p := range h.partitions {
		if p.isListening() {
			queues = append(queues, p.queue)
		}
	}
	loads := make([]provider.QueueLoad, len(queues))
	group, ctx := errgroup.WithContext(ctx)
	for i, q := range queues {
		group.Go(func() (err error) {
			loads[i], err = q.load(ctx, time.Now())
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	states := make([]metering.QueueState, len(queues))
	for i, q := range queues {
		states[i] = metering.QueueState{Queue: q.name, Length: loads[i].Length, Latency: loads[i].Latency}
	}
	return states, nil
}

// ageOf returns for how long a message has waited that may be handed out now: a
// timer since it was due.
func ageOf(d *delivery) time.Duration {
	since := d.insertedOn
	if d.env != nil && d.env.Message != nil {
		if due := provider.Due(*d.env.Message); due.After(since) {
			since = due
		}
	}
	return d.receivedAt.Sub(since)
}
