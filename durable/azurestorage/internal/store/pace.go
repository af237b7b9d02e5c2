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
// A service that refuses requests because it is overloaded gets none for a pause, and then a
// limited number per second (see [throttle]).
type Pace struct {
	Most int // requests in flight at a time

	mu       sync.Mutex // protects the following
	limit    float64    // of those that wait for their turn
	Running  int        // of those
	Turns    []chan struct{}
	InFlight map[*http.Request]time.Time // since when, all of them
	recent   time.Duration               // how long the slowest of late took
	cutAt    time.Time                   // when limit was cut last

	throttle  throttle
	urgent    []chan struct{} // turns of urgent requests; they wait for the throttle only
	wasUrgent bool            // the last turn went to an urgent request
	wake      *time.Timer     // runs next when the throttle allows a request; nil unless set
	gap       time.Duration   // average of recent times between two turns while requests wait
	gapBegan  time.Time       // the last turn, or later if no request waited then
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
// or as that which is waited for has taken so far. Behind a throttle, an answer to an urgent
// request takes at least as long as its turn.
func (p *Pace) Latency() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	slowest, now := p.recent, time.Now()
	for _, since := range p.InFlight {
		slowest = max(slowest, now.Sub(since))
	}
	return max(slowest, time.Duration(len(p.urgent))*p.throttle.interval())
}

// Rate returns the number of requests per second that the throttle allows, and false if it
// limits nothing.
func (p *Pace) Rate() (perSecond float64, limited bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.throttle.forget(time.Now())
	return p.throttle.rate, p.throttle.rate > 0
}

// busyWait is the longest wait for a turn at which clients are served. A client's request
// takes up to three turns, one after another, and has 30 seconds.
const busyWait = 8 * time.Second

// IsBusy reports whether a new request would wait for its turn for longer than busyWait.
func (p *Pace) IsBusy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	gap := max(p.gap, p.throttle.interval())
	if now.After(p.throttle.next) { // the service may be slower now than before; requests in flight may end together
		gap = max(gap, now.Sub(p.gapBegan)/time.Duration(max(1, p.Running)))
	}
	return max(p.throttle.next.Sub(now), time.Duration(len(p.Turns))*gap) > busyWait
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

// answered records the answer to a request that was sent at since. p.mu is held.
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

// isOverload reports whether a service refuses a request because it receives too many.
func isOverload(resp *http.Response) bool {
	return resp.StatusCode == http.StatusServiceUnavailable || resp.StatusCode == http.StatusTooManyRequests
}

// retryAfter returns the time for which a service wants no request, 0 if it names none.
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

// Do sends req when its turn comes. An urgent request waits for the throttle only.
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

// begin waits for a turn. An urgent request never ends its turn.
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
	select { // a turn that has come counts, even if ctx has ended
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

// next gives turns to waiting requests, as many as the limits allow now. p.mu is held.
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
		p.throttle.spend(now)
	}
}

// give gives the first turn, and returns the others.
func give(waiting []chan struct{}) []chan struct{} {
	waiting[0] <- struct{}{}
	return waiting[1:]
}

// measureGap ends the time between two turns at a turn that was given now. p.mu is held.
func (p *Pace) measureGap(now time.Time) {
	if len(p.Turns) == 0 {
		p.gap = 0
	} else {
		p.gap += (now.Sub(p.gapBegan) - p.gap) / 16
	}
	p.gapBegan = now
}

// wakeIn calls next after a time, unless a call is pending. p.mu is held.
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

// Urgent returns a context whose requests wait for the throttle only. A late renewal of a
// message causes more requests than a timely one.
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
