package store

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/chance"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/inuse"
)

// Pace watches how long a service takes to answer, and from that bounds how many
// requests are in flight to it: one that answers slowly gets fewer, so that who works
// on the hub does not keep it slow (additive increase, multiplicative decrease).
//
// A service that refuses requests because it is overloaded gets none for a while, and then
// only so many per second (see [throttle]).
type Pace struct {
	Most int // requests in flight at a time

	mu       sync.Mutex // protects the following
	limit    float64    // of those that wait for their turn
	Running  int        // of those
	Turns    []chan struct{}
	InFlight map[*http.Request]time.Time // since when, all of them
	recent   time.Duration               // how long the slowest of late took
	cutAt    time.Time                   // when limit was cut last

	throttle throttle
	urgent   []chan struct{} // urgent requests that wait until the service may be sent more
	served   bool            // the last turn went to an urgent request
	wake     *time.Timer     // gives turns when the service may be sent more; nil unless set
	gap      time.Duration   // between two turns while others wait, of late
	turnAt   time.Time       // of the last turn
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
// or as that which is waited for has taken so far. A service that refuses requests answers
// an urgent one when its turn has come.
func (p *Pace) Latency() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	slowest, now := p.recent, time.Now()
	for _, since := range p.InFlight {
		slowest = max(slowest, now.Sub(since))
	}
	return max(slowest, time.Duration(len(p.urgent))*p.throttle.interval())
}

// Rate returns how many requests per second the service takes, and false if it refuses none.
func (p *Pace) Rate() (perSecond float64, limited bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.throttle.forget(time.Now())
	return p.throttle.rate, p.throttle.rate > 0
}

// busyWait is the wait for a turn from which the service counts as busy. A client's request
// takes up to three turns, one after another, and has 30 seconds.
const busyWait = 8 * time.Second

// IsBusy reports whether a request that comes now would wait for its turn for longer than a
// client's request can.
func (p *Pace) IsBusy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if len(p.Turns) == 0 {
		return p.throttle.next.Sub(now) > busyWait
	}
	gap := max(p.gap, now.Sub(p.turnAt)) // between turns
	return time.Duration(len(p.Turns))*gap > busyWait
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
	now := time.Now()
	switch {
	case err == nil && isOverload(resp):
		p.throttle.refused(since, now, retryAfter(resp, now), func(d time.Duration) time.Duration { return Jitter(req.Context(), "overload", d) })
	case err == nil:
		p.throttle.answered(since, now)
		p.answered(since, now)
	default:
		p.answered(since, now)
	}
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

// isOverload reports whether a service refuses a request because it gets too many.
func isOverload(resp *http.Response) bool {
	return resp.StatusCode == http.StatusServiceUnavailable || resp.StatusCode == http.StatusTooManyRequests
}

// retryAfter returns for how long a service wants no request, 0 if it does not say so.
func retryAfter(resp *http.Response, now time.Time) time.Duration {
	text := resp.Header.Get("Retry-After")
	if seconds, err := strconv.Atoi(text); err == nil {
		return max(0, time.Duration(seconds)*time.Second)
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// Bound returns a transport that sends requests as soon as it is their turn.
func (p *Pace) Bound(next policy.Transporter) policy.Transporter { return &limiter{next, p} }

type limiter struct {
	next policy.Transporter
	pace *Pace
}

// Do sends req as soon as it may. An urgent one waits only while the service may be sent no
// more.
func (l *limiter) Do(req *http.Request) (*http.Response, error) {
	turn, _ := req.Context().Value(turnKey{}).(*turn)
	if turn != nil {
		turn.timer.Stop()
	}
	chance.TakeTurn(req.Context(), req.URL, req.Body)
	urgent := isUrgent(req.Context())
	if err := l.pace.begin(req.Context(), urgent); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNeverSent, err)
	}
	if !urgent {
		defer l.pace.end()
	}
	if turn != nil {
		turn.timer.Reset(attemptTimeout)
		turn.at = time.Now()
	}
	return l.next.Do(req)
}

// Begin waits for a turn.
func (p *Pace) Begin(ctx context.Context) error { return p.begin(ctx, false) }

func (p *Pace) begin(ctx context.Context, urgent bool) error {
	p.mu.Lock()
	queue := &p.Turns
	if urgent {
		queue = &p.urgent
	}
	turn := make(chan struct{}, 1)
	*queue = append(*queue, turn)
	p.next()
	p.mu.Unlock()
	select { // a turn that is there must not depend on chance
	case <-turn:
		return nil
	default:
	}
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(*queue, turn); i >= 0 {
		*queue = slices.Delete(*queue, i, i+1)
		return ctx.Err()
	}
	if !urgent { // its turn came at the same time
		p.Running--
		p.next()
	}
	return ctx.Err()
}

func (p *Pace) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Running--
	p.next()
}

// next gives turns to those who wait, as many as the service may be sent now. p.mu is held.
func (p *Pace) next() {
	for now := time.Now(); ; {
		others := len(p.Turns) > 0 && p.Running < int(p.limit)
		if len(p.urgent) == 0 && !others {
			return
		}
		p.throttle.forget(now)
		if wait := p.throttle.next.Sub(now); wait > 0 {
			p.wakeIn(wait)
			return
		}
		if others && (len(p.urgent) == 0 || p.served && p.throttle.rate > 0) {
			p.Running++
			p.Turns, p.served = give(p.Turns), false
			p.noteTurn(now)
		} else {
			p.urgent, p.served = give(p.urgent), true
		}
		p.throttle.spend(now)
	}
}

// give gives a turn to the first of those who wait, and returns the rest.
func give(waiting []chan struct{}) []chan struct{} {
	waiting[0] <- struct{}{}
	return waiting[1:]
}

// noteTurn takes note of a turn that was given now. p.mu is held.
func (p *Pace) noteTurn(now time.Time) {
	if len(p.Turns) == 0 {
		p.gap = 0
	} else {
		p.gap += (now.Sub(p.turnAt) - p.gap) / 4
	}
	p.turnAt = now
}

// wakeIn has turns given after a time. p.mu is held.
func (p *Pace) wakeIn(wait time.Duration) {
	if p.wake != nil {
		return
	}
	p.wake = time.AfterFunc(wait, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.wake = nil
		p.next()
	})
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
	all["requests that wait for "+service] = len(p.Turns) + len(p.urgent)
}
