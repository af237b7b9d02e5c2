package azurestorage

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// pace watches how long a service takes to answer, and from that bounds how many
// requests are in flight to it: one that answers slowly gets fewer, so that who works
// on the hub does not keep it slow (additive increase, multiplicative decrease).
type pace struct {
	most int // requests in flight at a time

	mu       sync.Mutex // protects the following
	limit    float64    // of those that wait for their turn
	running  int        // of those
	turns    []chan struct{}
	inFlight map[*http.Request]time.Time // since when, all of them
	recent   time.Duration               // how long the slowest of late took
	cutAt    time.Time                   // when limit was cut last
}

const (
	// slowAnswer is how long an answer may take before fewer are asked for.
	slowAnswer = time.Second
	// leastInFlight is to how many that goes down.
	leastInFlight = 4
)

func newPace(most int) *pace {
	return &pace{most: most, limit: float64(most), inFlight: map[*http.Request]time.Time{}}
}

// latency returns how long an answer may take now: as long as the slowest of late did,
// or as that which is waited for has taken so far.
func (p *pace) latency() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	slowest, now := p.recent, time.Now()
	for _, since := range p.inFlight {
		slowest = max(slowest, now.Sub(since))
	}
	return slowest
}

// isBusy reports whether so many requests wait for their turn that one more would
// wait for long.
func (p *pace) isBusy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.turns) > 2*p.most
}

// watch returns a transport whose requests p gets to know.
func (p *pace) watch(next policy.Transporter) policy.Transporter { return &watcher{next, p} }

type watcher struct {
	next policy.Transporter
	pace *pace
}

// Do sends req.
func (w *watcher) Do(req *http.Request) (*http.Response, error) {
	p, since := w.pace, time.Now()
	p.mu.Lock()
	p.inFlight[req] = since
	p.mu.Unlock()
	resp, err := w.next.Do(req)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.inFlight, req)
	p.answered(since, time.Now())
	return resp, err
}

// answered takes note of a request that was sent at since. p.mu is held.
func (p *pace) answered(since, now time.Time) {
	took := now.Sub(since)
	p.recent = max(took, p.recent-(p.recent-took)/8)
	switch {
	case took < slowAnswer:
		p.limit = min(p.limit+1/p.limit, float64(p.most))
	case since.After(p.cutAt): // else it was sent before fewer were asked for
		p.limit, p.cutAt = max(p.limit/2, min(leastInFlight, float64(p.most))), now
	}
}

// bound returns a transport that sends requests as soon as it is their turn.
func (p *pace) bound(next policy.Transporter) policy.Transporter { return &limiter{next, p} }

type limiter struct {
	next policy.Transporter
	pace *pace
}

// Do sends req as soon as it may. One that is urgent may at once.
func (l *limiter) Do(req *http.Request) (*http.Response, error) {
	if isUrgent(req.Context()) {
		return l.next.Do(req)
	}
	timer, _ := req.Context().Value(attemptTimerKey{}).(*time.Timer)
	if timer != nil {
		timer.Stop()
	}
	if err := l.pace.begin(req.Context()); err != nil {
		return nil, fmt.Errorf("%w: %w", errNeverSent, err)
	}
	defer l.pace.end()
	if timer != nil {
		timer.Reset(attemptTimeout)
	}
	return l.next.Do(req)
}

// begin waits for a turn.
func (p *pace) begin(ctx context.Context) error {
	p.mu.Lock()
	if len(p.turns) == 0 && p.running < int(p.limit) {
		p.running++
		p.mu.Unlock()
		return nil
	}
	turn := make(chan struct{}, 1)
	p.turns = append(p.turns, turn)
	p.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, t := range p.turns {
		if t == turn {
			p.turns = append(p.turns[:i], p.turns[i+1:]...)
			return ctx.Err()
		}
	}
	p.running-- // its turn came at the same time
	p.next()
	return ctx.Err()
}

func (p *pace) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running--
	p.next()
}

// next gives turns to those who wait. p.mu is held.
func (p *pace) next() {
	for len(p.turns) > 0 && p.running < int(p.limit) {
		p.running++
		p.turns[0] <- struct{}{}
		p.turns = p.turns[1:]
	}
}

// urgent returns a context whose requests wait for no turn: what is late if it is not
// done now makes more work than it is.
func urgent(ctx context.Context) context.Context { return context.WithValue(ctx, urgentKey{}, true) }

type urgentKey struct{}

func isUrgent(ctx context.Context) bool { return ctx.Value(urgentKey{}) != nil }
