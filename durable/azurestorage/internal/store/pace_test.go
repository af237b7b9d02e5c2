package store

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// answering is a service that answers with a status after a time.
type answering struct {
	after  time.Duration
	status func(n int) int // of the n-th request, from 1
	header http.Header

	mu   sync.Mutex
	sent []time.Time
}

func (a *answering) Do(*http.Request) (*http.Response, error) {
	a.mu.Lock()
	a.sent = append(a.sent, time.Now())
	n := len(a.sent)
	a.mu.Unlock()
	time.Sleep(a.after)
	status := http.StatusOK
	if a.status != nil {
		status = a.status(n)
	}
	return &http.Response{StatusCode: status, Header: a.header, Body: http.NoBody}, nil
}

// get sends a request within ctx, and returns its status.
func get(ctx context.Context, t *testing.T, transport interface {
	Do(*http.Request) (*http.Response, error)
}) (int, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://queue", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// The time for which a message is hidden begins when the request is sent, not when it begins
// to wait for its turn.
func TestPace_ARequestIsSentWhenItsTurnComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, service := NewPace(1), &answering{after: 10 * time.Second}
		transport, began := p.Bound(service), time.Now()
		var all sync.WaitGroup
		for n := range 3 {
			all.Go(func() {
				time.Sleep(time.Duration(n) * time.Millisecond)
				var at time.Time
				err := Once(t.Context(), func(ctx context.Context) error {
					_, err := get(ctx, t, transport)
					at = sentAt(ctx)
					return err
				})
				if want := time.Duration(n) * 10 * time.Second; err != nil || at.Sub(began) != want {
					t.Errorf("request %d was sent after %v, %v; want %v", n, at.Sub(began), err, want)
				}
			})
		}
		all.Wait()
	})
}
