package azsim

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/clocks"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
)

// Worker is a process that uses the account: the transport of its clients. For the account, a
// fault of a worker is a fault of the whole process. Each worker has a machine of its own.
type Worker struct {
	account *Account
	name    string
	clock   clocks.Clock

	mu       sync.Mutex // protects the fields below
	requests int
	frozenAt time.Time // when it was first frozen
	thaw     time.Time // the end of the freeze
	skew     time.Duration
	dead     chan struct{} // closed when the worker is killed
}

// Name returns the worker's name.
func (w *Worker) Name() string { return w.name }

// Kill kills the worker. Its later requests have no effect; requests in flight may or may not
// be delivered.
func (w *Worker) Kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.dead:
	default:
		close(w.dead)
	}
}

// Dead returns a channel that is closed when the worker is killed.
func (w *Worker) Dead() <-chan struct{} { return w.dead }

func (w *Worker) isDead() bool {
	select {
	case <-w.dead:
		return true
	default:
		return false
	}
}

// Freeze blocks all requests and responses of the worker for d, as if the process got no
// processor time. The requests take effect afterwards, even if their callers have given up.
func (w *Worker) Freeze(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if w.frozenAt.IsZero() {
		w.frozenAt = now
	}
	w.thaw = now.Add(d)
}

// Clock returns the clock of the worker's machine.
func (w *Worker) Clock() *clocks.Clock { return &w.clock }

// Sleep freezes the worker for d, as if its machine slept: its monotonic clock stands still.
func (w *Worker) Sleep(d time.Duration) {
	w.Freeze(d)
	w.clock.Sleep(d)
}

// DisturbClock changes the clock of a machine that has been frozen for d. Depending on roll, one half of
// the machines sleep, and the wall clocks of the others are set. No machine does both: it could not
// notice a sleep if its wall clock was set back by the same time.
func (w *Worker) DisturbClock(d time.Duration, roll uint64) {
	last := byte(0)
	if w.name != "" {
		last = w.name[len(w.name)-1]
	}
	switch {
	case mix(roll, 1)&1 == 0:
	case last&1 == 0:
		w.clock.Sleep(d)
	default:
		w.clock.Step(time.Duration((fraction(mix(roll, 2)) - 0.5) * float64(4*time.Minute)))
	}
}

// FrozenSince returns when the worker was first frozen; ok is false if it never was.
func (w *Worker) FrozenSince() (at time.Time, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.frozenAt, !w.frozenAt.IsZero()
}

// Skew sets the worker's clock ahead of the account's by d, truncated to seconds; d may be
// negative. All times that the worker sends or receives are shifted.
func (w *Worker) Skew(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.skew = d.Truncate(time.Second)
}

func (w *Worker) clockAhead() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.skew
}

// frozen returns the remaining time of the freeze.
func (w *Worker) frozen() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Until(w.thaw)
}

// Do implements policy.Transporter of azcore.
func (w *Worker) Do(raw *http.Request) (*http.Response, error) {
	ctx := raw.Context()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	r, err := newRequest(w.name, raw)
	if err != nil {
		return nil, err
	}
	r.shift(w.clockAhead())
	w.mu.Lock()
	w.requests++
	r.Number = w.requests
	w.mu.Unlock()
	x := exchange{w: w, a: w.account, r: r, asked: time.Now(), done: make(chan struct{})}
	if err := x.upload(ctx); err != nil {
		return nil, err
	}
	if !x.a.enter() {
		return nil, errEnded
	}
	x.fault, x.delay = w.account.admit(r)
	if x.a.cfg.MaxLatency <= 0 && x.fault == None && x.delay == 0 && w.frozen() <= 0 { // nothing delays it
		x.run()
	} else {
		go x.run()
	}
	select {
	case <-x.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if x.err != nil {
		return nil, x.err
	}
	answer := x.reply.skewed(-w.clockAhead())
	resp := answer.response(raw, x.id, x.at.Add(-w.clockAhead()))
	if raw.Method != http.MethodHead {
		resp.Body = newDownload(ctx, &x, answer.body)
	}
	return resp, nil
}

// upload waits for the transfer of the request's body.
func (x *exchange) upload(ctx context.Context) error {
	if x.a.cfg.Bandwidth == nil || len(x.r.Body) == 0 {
		return nil
	}
	rate := x.a.cfg.Bandwidth(*x.r)
	if rate == 0 || pause.For(ctx, time.Duration(len(x.r.Body))*time.Second/time.Duration(rate)) {
		return nil
	}
	return context.Cause(ctx)
}

// exchange is a request in flight and its response.
type exchange struct {
	w     *Worker
	a     *Account
	r     *Request
	asked time.Time
	fault Fault
	delay time.Duration

	// Set by run before it closes done.
	done  chan struct{}
	reply *reply
	err   error
	at    time.Time // when it took effect
	id    string
}

// run delivers the request to the account and the response to the worker.
func (x *exchange) run() {
	defer x.a.underway.Done()
	defer close(x.done)
	defer x.a.leave(x.r)
	time.Sleep(x.delay / 2)
	x.err = x.deliver()
	time.Sleep(x.delay / 2)
	x.awaitTransfer(mix(x.r.Roll, 2))
	if x.w.isDead() {
		x.err = errKilled
	}
}

// deliver delivers the request to the account.
func (x *exchange) deliver() error {
	deadBefore := x.w.isDead()
	x.awaitTransfer(mix(x.r.Roll, 1))
	switch {
	case deadBefore:
		return errKilled
	case x.w.isDead() && x.r.Roll&1 == 0: // the worker died before the request left it
		return errKilled
	}
	switch x.fault {
	case FailBefore:
		x.a.recordUndelivered(x, nil)
		return errLost
	case Throttle:
		x.reply = refused(x.r, x.fault)
		if after := x.a.cfg.RetryAfter; after > 0 {
			x.reply.header.Set("Retry-After", strconv.Itoa(int(after/time.Second)))
		}
		x.a.recordUndelivered(x, x.reply)
		return nil
	case KillBefore:
		x.a.recordUndelivered(x, nil)
		x.w.Kill()
		return errKilled
	case Slow:
		x.a.late.Add(1)
		defer x.a.late.Add(-1)
		time.Sleep(slowDelay(mix(x.r.Roll, 3)))
	case Late:
		x.deliverLate()
		return errLost
	case None, FailAfter, RefuseAfter, KillAfter, FreezeAfter, Twice, Echo, Cut:
	}
	x.reply = x.a.serve(x)
	switch x.fault {
	case Twice:
		second := x.copyOf()
		x.reply = x.a.serve(second)
		x.at, x.id = second.at, second.id
	case Echo:
		x.deliverLate()
	case FailAfter:
		return errLost
	case RefuseAfter:
		x.reply = refused(x.r, x.fault)
	case KillAfter:
		x.w.Kill()
		return errKilled
	case FreezeAfter:
		d := freezeTime(mix(x.r.Roll, 4))
		x.w.Freeze(d)
		x.w.DisturbClock(d, mix(x.r.Roll, 5))
		return errLost
	case Cut:
		if len(x.reply.body) == 0 {
			return errLost
		}
	case None, Throttle, FailBefore, Slow, KillBefore, Late:
	}
	return nil
}

// awaitTransfer waits for the latency between worker and account, and until the worker is not frozen.
func (x *exchange) awaitTransfer(roll uint64) {
	if x.w.frozen() > 0 {
		x.a.late.Add(1)
		defer x.a.late.Add(-1)
	}
	if d := x.a.latency(roll); d > 0 {
		time.Sleep(d)
	}
	for d := x.w.frozen(); d > 0 && !x.w.isDead(); d = x.w.frozen() {
		time.Sleep(d + x.a.latency(mix(roll, 1)))
	}
}

// copyOf returns the exchange of a duplicate request, whose response is discarded.
func (x *exchange) copyOf() *exchange {
	r := *x.r
	r.Roll = mix(r.Roll, 7)
	return &exchange{w: x.w, a: x.a, r: &r, asked: x.asked, fault: x.fault}
}

// deliverLate delivers a duplicate of the request after several seconds.
func (x *exchange) deliverLate() {
	late := x.copyOf()
	x.a.late.Add(1)
	x.a.underway.Go(func() {
		defer x.a.late.Add(-1)
		time.Sleep(slowDelay(mix(late.r.Roll, 3)))
		x.a.serve(late)
	})
}
