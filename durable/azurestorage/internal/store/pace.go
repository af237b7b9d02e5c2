package store

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/chance"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/inuse"
)

// Pace watches how long a service takes to answer, and from that bounds how many
// requests are in flight to it: one that answers slowly gets fewer, so that who works
// on the hub does not keep it slow (additive increase, multiplicative decrease).
type Pace struct {
	Most int // requests in flight at a time

	mu       sync.Mutex // protects the following
	limit    float64    // of those that wait for their turn
	Running  int        // of those
	Turns    []chan struct{}
	InFlight map[*http.Request]time.Time // since when, all of them
	recent   time.Duration               // how long the slowest of late took
	cutAt    time.Time                   // when limit was cut last
}

const (
	// slowAnswer is how long an answer may take before fewer are asked for.
	slowAnswer = time.Second
	// LeastInFlight is to how many that goes down.
	LeastInFlight = 4
)

// NewPace returns a pace that allows at most so many requests in flight.
func NewPace(most int) *Pace {
	return &Pace{Most: most, limit: float64(most), InFlight: map[*http.Request]time.Time{}}
}

// Latency returns how long an answer may take now: as long as the slowest of late did,
// or as that which is waited for has taken so far.
func (p *Pace) Latency() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	slowest, now := p.recent, time.Now()
	for _, since := range p.InFlight {
		slowest = max(slowest, now.Sub(since))
	}
	return slowest
}

// IsBusy reports whether so many requests wait for their turn that one more would
// wait for long.
func (p *Pace) IsBusy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.Turns) > 2*p.Most
}

// Watch returns a transport whose requests p gets to know.
func (p *Pace) Watch(next policy.Transporter) policy.Transporter { return &watcher{next, p} }

type watcher struct {
	next policy.Transporter
	pace *Pace
}

// Do sends req.
func (w *watcher) Do(req *http.Request) (*http.Response, error) {
	p, since := w.pace, time.Now()
	p.mu.Lock()
	p.InFlight[req] = since
	p.mu.Unlock()
	resp, err := w.next.Do(req)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.InFlight, req)
	p.answered(since, time.Now())
	return resp, err
}

// answered takes note of a request that was sent at since. p.mu is held.
func (p *Pace) answered(since, now time.Time) {
	took := now.Sub(since)
	p.recent = max(took, p.recent-(p.recent-took)/8)
	switch {
	case took < slowAnswer:
		p.limit = min(p.limit+1/p.limit, float64(p.Most))
	case since.After(p.cutAt): // else it was sent before fewer were asked for
		p.limit, p.cutAt = max(p.limit/2, min(LeastInFlight, float64(p.Most))), now
	}
}

// Bound returns a transport that sends requests as soon as it is their turn.
func (p *Pace) Bound(next policy.Transporter) policy.Transporter { return &limiter{next, p} }

type limiter struct {
	next policy.Transporter
	pace *Pace
}

// Do sends req as soon as it may. One that is urgent may at once.
func (l *limiter) Do(req *http.Request) (*http.Response, error) {
	if isUrgent(req.Context()) {
		return l.next.Do(req)
	}
	turn, _ := req.Context().Value(turnKey{}).(*turn)
	if turn != nil {
		turn.timer.Stop()
	}
	chance.TakeTurn(req.Context(), req.URL, req.Body)
	if err := l.pace.Begin(req.Context()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNeverSent, err)
	}
	defer l.pace.end()
	if turn != nil {
		turn.timer.Reset(attemptTimeout)
		turn.at = time.Now()
	}
	return l.next.Do(req)
}

// Begin waits for a turn.
func (p *Pace) Begin(ctx context.Context) error {
	p.mu.Lock()
	if len(p.Turns) == 0 && p.Running < int(p.limit) {
		p.Running++
		p.mu.Unlock()
		return nil
	}
	turn := make(chan struct{}, 1)
	p.Turns = append(p.Turns, turn)
	p.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, t := range p.Turns {
		if t == turn {
			p.Turns = append(p.Turns[:i], p.Turns[i+1:]...)
			return ctx.Err()
		}
	}
	p.Running-- // its turn came at the same time
	p.next()
	return ctx.Err()
}

func (p *Pace) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Running--
	p.next()
}

// next gives turns to those who wait. p.mu is held.
func (p *Pace) next() {
	for len(p.Turns) > 0 && p.Running < int(p.limit) {
		p.Running++
		p.Turns[0] <- struct{}{}
		p.Turns = p.Turns[1:]
	}
}

// Urgent returns a context whose requests wait for no turn: what is late if it is not
// done now makes more work than it is.
func Urgent(ctx context.Context) context.Context { return context.WithValue(ctx, urgentKey{}, true) }

type urgentKey struct{}

func isUrgent(ctx context.Context) bool { return ctx.Value(urgentKey{}) != nil }

// Count adds to all what requests to the service hold.
func (p *Pace) Count(all inuse.Counts, service string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all["requests to "+service] = p.Running
	all["requests in flight to "+service] = len(p.InFlight)
	all["requests that wait for "+service] = len(p.Turns)
}
