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

// Pace limits the requests in flight to a service according to its latency: while responses are slow,
// it sends fewer requests at a time (additive increase, multiplicative decrease). This keeps the
// workers of a hub from overloading the service.
//
// After a refusal because of overload, it sends no request for a pause, and then a limited number per
// second (see [throttle]).
type Pace struct {
	MaxInFlight int // maximum number of requests in flight

	mu       sync.Mutex // guards the following fields
	limit    float64    // current limit for requests that wait for their turn
	Running  int        // requests with a turn
	Turns    []chan struct{}
	InFlight map[*http.Request]time.Time // all requests in flight, with their start times
	recent   time.Duration               // decaying maximum of recent latencies
	cutAt    time.Time                   // time of the last decrease of limit

	throttle  throttle
	urgent    []chan struct{} // turns of urgent requests; they wait for the throttle only
	wasUrgent bool            // the last turn went to an urgent request
	wake      *time.Timer     // runs next when the throttle allows a request; nil unless set
	gap       time.Duration   // average of recent times between two turns while requests wait
	gapBegan  time.Time       // the last turn, or later if no request waited then
}

const (
	// slowAnswer is the latency at which the limit is decreased.
	slowAnswer = time.Second
	// MinInFlight is the minimum of the limit.
	MinInFlight = 4
)

// NewPace returns a Pace for at most most requests in flight.
func NewPace(most int) *Pace {
	return &Pace{MaxInFlight: most, limit: float64(most), InFlight: map[*http.Request]time.Time{}}
}

// Latency returns the expected latency of a request: the recent maximum, or the age of the oldest
// request in flight if that is higher. While the throttle is active, it is at least the time until the
// turn of a new urgent request.
func (p *Pace) Latency() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	slowest, now := p.recent, time.Now()
	for _, since := range p.InFlight {
		slowest = max(slowest, now.Sub(since))
	}
	return max(slowest, time.Duration(len(p.urgent))*p.throttle.interval())
}

// Rate returns the requests per second that the throttle allows. limited is false if the throttle is
// inactive.
func (p *Pace) Rate() (perSecond float64, limited bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.throttle.forget(time.Now())
	return p.throttle.rate, p.throttle.rate > 0
}

// busyWait is the longest wait for a turn at which the hub accepts client requests. A client request
// takes up to three consecutive turns, and times out after 30 seconds.
const busyWait = 8 * time.Second

// IsBusy reports whether a new request would wait for its turn for longer than busyWait.
func (p *Pace) IsBusy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	gap := max(p.gap, p.throttle.interval())
	if now.After(p.throttle.next) { // the service may have become slower; requests in flight may end together
		gap = max(gap, now.Sub(p.gapBegan)/time.Duration(max(1, p.Running)))
	}
	return max(p.throttle.next.Sub(now), time.Duration(len(p.Turns))*gap) > busyWait
}

// WatchTransport returns a transport that reports its requests to p.
func (p *Pace) WatchTransport(next policy.Transporter) policy.Transporter { return &watcher{next, p} }

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

// answered records the response to a request that was sent at since. The caller holds p.mu.
func (p *Pace) answered(since, now time.Time) {
	took := now.Sub(since)
	p.recent = max(took, p.recent-(p.recent-took)/8)
	switch {
	case took < slowAnswer:
		p.limit = min(p.limit+1/p.limit, float64(p.MaxInFlight))
	case since.After(p.cutAt): // otherwise the request was sent before the last decrease
		p.limit, p.cutAt = max(p.limit/2, min(MinInFlight, float64(p.MaxInFlight))), now
	}
}

// isOverload reports whether a service refuses a request because of overload.
func isOverload(resp *http.Response) bool {
	return resp.StatusCode == http.StatusServiceUnavailable || resp.StatusCode == http.StatusTooManyRequests
}

// retryAfter returns the time for which a service accepts no requests, 0 if the response does not
// contain one.
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

// LimitTransport returns a transport that waits for a turn before it sends a request.
func (p *Pace) LimitTransport(next policy.Transporter) policy.Transporter { return &limiter{next, p} }

type limiter struct {
	next policy.Transporter
	pace *Pace
}

// Do sends req when its turn comes. An urgent request waits only for the throttle.
func (l *limiter) Do(req *http.Request) (*http.Response, error) {
	turn, _ := req.Context().Value(turnKey{}).(*turn)
	if turn != nil {
		turn.timer.Stop()
	}
	chance.AwaitTurn(req.Context(), req.URL, req.Body)
	urgent := isUrgent(req.Context())
	if err := l.pace.begin(req.Context(), urgent); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNeverSent, err)
	}
	if !urgent {
		defer l.pace.end()
	}
	if turn != nil {
		turn.limit = attemptLimit(req.ContentLength)
		turn.timer.Reset(turn.limit)
		turn.at = time.Now()
	}
	return l.next.Do(req)
}

// AwaitTurn waits for a turn.
func (p *Pace) AwaitTurn(ctx context.Context) error { return p.begin(ctx, false) }

// begin waits for a turn. The caller must not end the turn of an urgent request.
func (p *Pace) begin(ctx context.Context, urgent bool) error {
	p.mu.Lock()
	queue := &p.Turns
	if urgent {
		queue = &p.urgent
	} else if len(p.Turns) == 0 {
		p.gapBegan = time.Now()
	}
	turn := make(chan struct{}, 1)
	*queue = append(*queue, turn)
	p.next()
	p.mu.Unlock()
	select { // a turn counts even if ctx has ended
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
	if !urgent { // the turn came at the same time
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

// next gives turns to waiting requests as far as the limits allow. The caller holds p.mu.
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
		if others && (len(p.urgent) == 0 || p.wasUrgent && p.throttle.rate > 0) {
			p.Running++
			p.Turns, p.wasUrgent = give(p.Turns), false
			p.measureGap(now)
		} else {
			p.urgent, p.wasUrgent = give(p.urgent), true
		}
		p.throttle.countRequest(now)
	}
}

// give gives the first waiting request its turn and returns the others.
func give(waiting []chan struct{}) []chan struct{} {
	waiting[0] <- struct{}{}
	return waiting[1:]
}

// measureGap records the time since the previous turn. The caller holds p.mu.
func (p *Pace) measureGap(now time.Time) {
	if len(p.Turns) == 0 {
		p.gap = 0
	} else {
		p.gap += (now.Sub(p.gapBegan) - p.gap) / 16
	}
	p.gapBegan = now
}

// wakeIn calls next after a wait, unless a call is scheduled already. The caller holds p.mu.
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

// Urgent returns a context whose requests wait only for the throttle. Use it for renewals of
// visibility timeouts: a late renewal causes more requests than a timely one.
func Urgent(ctx context.Context) context.Context { return context.WithValue(ctx, urgentKey{}, true) }

type urgentKey struct{}

func isUrgent(ctx context.Context) bool { return ctx.Value(urgentKey{}) != nil }

// Count adds the numbers of requests to the service to all.
func (p *Pace) Count(all inuse.Counts, service string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all["requests to "+service] = p.Running
	all["requests in flight to "+service] = len(p.InFlight)
	all["requests that wait for "+service] = len(p.Turns) + len(p.urgent)
}
