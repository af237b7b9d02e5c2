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

// A slowService answers after a time, and counts who waits for that.
type slowService struct {
	mu         sync.Mutex
	answersIn  time.Duration
	waits, top int
}

func (s *slowService) Do(*http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.waits++
	s.top = max(s.top, s.waits)
	d := s.answersIn
	s.mu.Unlock()
	time.Sleep(d)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits--
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

func (s *slowService) answerIn(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answersIn, s.top = d, 0
}

func (s *slowService) most() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.top
}

func TestPace_AsksLessOfAServiceThatAnswersSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowService{answersIn: 10 * time.Millisecond}
		p := store.NewPace(32)
		transport := p.Bound(p.Watch(s))
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
			t.Errorf("a quick service was asked by %d at a time, want 32; its latency is %v", s.most(), p.Latency())
		}
		if p.IsBusy() {
			t.Error("68 wait for their turn, which comes soon, and it is busy")
		}
		s.answerIn(20 * time.Second)
		time.Sleep(10 * time.Second)
		if got := p.Latency(); got < 9*time.Second {
			t.Errorf("nobody was answered for ten seconds, and the latency is %v", got)
		}
		time.Sleep(2 * time.Minute)
		s.answerIn(20 * time.Second) // counts anew
		time.Sleep(2 * time.Minute)
		if s.most() != store.LeastInFlight {
			t.Errorf("a slow service was asked by %d at a time, want %d", s.most(), store.LeastInFlight)
		}
		if !p.IsBusy() {
			t.Error("nearly 100 wait for minutes, and it is not busy")
		}
		began := time.Now()
		if err := ask(store.Urgent(t.Context())); err != nil || time.Since(began) != 20*time.Second {
			t.Errorf("what is urgent took %v, %v; want 20 s, without waiting for a turn", time.Since(began), err)
		}
		s.answerIn(10 * time.Millisecond)
		time.Sleep(2 * time.Minute)
		if s.most() != 32 || p.Latency() > time.Second {
			t.Errorf("when it was quick again it was asked by %d at a time, want 32; its latency is %v", s.most(), p.Latency())
		}
		stop()
		all.Wait()
		if p.Running != 0 || len(p.Turns) != 0 || len(p.InFlight) != 0 || p.IsBusy() {
			t.Errorf("when all are gone, %d run and %d wait", p.Running, len(p.Turns))
		}
	})
}
