package azurestorage

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
)

// A slowService responds after a delay and counts concurrent requests.
type slowService struct {
	mu         sync.Mutex
	latency    time.Duration
	waits, top int
}

func (s *slowService) Do(*http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.waits++
	s.top = max(s.top, s.waits)
	d := s.latency
	s.mu.Unlock()
	time.Sleep(d)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits--
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

func (s *slowService) setLatency(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latency, s.top = d, 0
}

func (s *slowService) most() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.top
}

func TestPace_SendsFewerRequestsToASlowService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowService{latency: 10 * time.Millisecond}
		p := store.NewPace(32)
		transport := p.LimitTransport(p.WatchTransport(s))
		ask := func(ctx context.Context) error {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://queue", nil)
			if err != nil {
				return err
			}
			resp, err := transport.Do(req)
			if err == nil {
				err = resp.Body.Close()
			}
			return err
		}
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				for ctx.Err() == nil {
					if err := ask(ctx); err != nil && !errors.Is(err, store.ErrNeverSent) {
						t.Error(err)
					}
				}
			})
		}
		time.Sleep(5 * time.Second)
		if s.most() != 32 || p.Latency() != 10*time.Millisecond {
			t.Errorf("a fast service got %d concurrent requests, want 32; latency %v", s.most(), p.Latency())
		}
		if p.IsBusy() {
			t.Error("busy although 68 waiting requests will be sent soon")
		}
		s.setLatency(20 * time.Second)
		time.Sleep(10 * time.Second)
		if got := p.Latency(); got < 9*time.Second {
			t.Errorf("latency %v after ten seconds without a response, want at least 9s", got)
		}
		time.Sleep(2 * time.Minute)
		s.setLatency(20 * time.Second) // resets the maximum
		time.Sleep(2 * time.Minute)
		if s.most() != store.MinInFlight {
			t.Errorf("a slow service got %d concurrent requests, want %d", s.most(), store.MinInFlight)
		}
		if !p.IsBusy() {
			t.Error("not busy although nearly 100 requests will wait for minutes")
		}
		began := time.Now()
		if err := ask(store.Urgent(t.Context())); err != nil || time.Since(began) != 20*time.Second {
			t.Errorf("an urgent request took %v, %v; want 20s without waiting", time.Since(began), err)
		}
		s.setLatency(10 * time.Millisecond)
		time.Sleep(2 * time.Minute)
		if s.most() != 32 || p.Latency() > time.Second {
			t.Errorf("when it was fast again, the service got %d concurrent requests, want 32; latency %v", s.most(), p.Latency())
		}
		stop()
		all.Wait()
		if p.Running != 0 || len(p.Turns) != 0 || len(p.InFlight) != 0 || p.IsBusy() {
			t.Errorf("at the end, %d requests run and %d wait; want 0", p.Running, len(p.Turns))
		}
	})
}
