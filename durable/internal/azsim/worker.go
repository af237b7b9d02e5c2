package azsim

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// A Worker is a process that has the account for its storage: the transport of
// its clients. What it does to a worker it does to the whole process, as far as
// the account can see it.
type Worker struct {
	account *Account
	name    string

	mu       sync.Mutex // protects the following
	requests int
	frozenAt time.Time // when it was frozen first
	thaw     time.Time // until then nothing comes in or goes out
	skew     time.Duration
	dead     chan struct{} // closed when the worker is killed
}

// Name returns the worker's name.
func (w *Worker) Name() string { return w.name }

// Kill ends the worker's life: no request that it makes from now on has an
// effect, and what is on its way may arrive or not.
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

// Freeze keeps all requests and answers of the worker from passing for d, as if
// the process had no processor for as long. What it wants to send meanwhile
// takes effect afterwards, even if it does not wait for it.
func (w *Worker) Freeze(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if w.frozenAt.IsZero() {
		w.frozenAt = now
	}
	w.thaw = now.Add(d)
}

// FrozenSince returns when the worker was frozen first; ok is false if it never was.
func (w *Worker) FrozenSince() (at time.Time, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.frozenAt, !w.frozenAt.IsZero()
}

// Skew makes the worker's clock be ahead of the account's by d, in whole seconds,
// which may be negative: all times that it sends or receives are changed by as
// much.
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

// frozen returns for how long nothing passes.
func (w *Worker) frozen() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Until(w.thaw)
}

// Do implements the policy.Transporter of azcore.
func (w *Worker) Do(raw *http.Request) (*http.Response, error) {
	ctx := raw.Context()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	r, err := newRequest(w.name, raw)
	if err != nil {
		return nil, err
	}
	r.move(w.clockAhead())
	w.mu.Lock()
	w.requests++
	r.Number = w.requests
	w.mu.Unlock()
	x := exchange{w: w, a: w.account, r: r, asked: time.Now(), done: make(chan struct{})}
	x.fault, x.delay = w.account.admit(r)
	if x.a.cfg.MaxLatency <= 0 && x.fault == None && x.delay == 0 && w.frozen() <= 0 { // nothing to wait for
		x.run()
	} else {
		x.a.underway.Go(x.run)
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

// exchange is a request on its way, and its answer.
type exchange struct {
	w     *Worker
	a     *Account
	r     *Request
	asked time.Time
	fault Fault
	delay time.Duration

	// Written by run, which then closes done.
	done  chan struct{}
	reply *reply
	err   error
	at    time.Time // when it took effect
	id    string
}

// run takes the request to the account and the answer back.
func (x *exchange) run() {
	defer close(x.done)
	defer x.a.leave(x.r)
	time.Sleep(x.delay / 2)
	x.err = x.there()
	time.Sleep(x.delay / 2)
	x.pass(mix(x.r.Roll, 2))
	if x.w.isDead() {
		x.err = errKilled
	}
}

// there takes the request to the account.
func (x *exchange) there() error {
	born := x.w.isDead()
	x.pass(mix(x.r.Roll, 1))
	switch {
	case born:
		return errKilled
	case x.w.isDead() && x.r.Roll&1 == 0: // it died meanwhile, and this was not sent
		return errKilled
	}
	switch x.fault {
	case FailBefore:
		x.a.note(x, nil)
		return errLost
	case Throttle:
		x.reply = refused(x.r, x.fault)
		if after := x.a.cfg.RetryAfter; after > 0 {
			x.reply.header.Set("Retry-After", strconv.Itoa(int(after/time.Second)))
		}
		x.a.note(x, x.reply)
		return nil
	case KillBefore:
		x.a.note(x, nil)
		x.w.Kill()
		return errKilled
	case Slow:
		x.a.late.Add(1)
		defer x.a.late.Add(-1)
		time.Sleep(slowness(mix(x.r.Roll, 3)))
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
		x.w.Freeze(stall(mix(x.r.Roll, 4)))
		return errLost
	case Cut:
		if len(x.reply.body) == 0 {
			return errLost
		}
	case None, Throttle, FailBefore, Slow, KillBefore, Late:
	}
	return nil
}

// pass waits for as long as it takes between worker and account.
func (x *exchange) pass(roll uint64) {
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

// copyOf returns the exchange of a copy of a request, which nobody waits for.
func (x *exchange) copyOf() *exchange {
	r := *x.r
	r.Roll = mix(r.Roll, 7)
	return &exchange{w: x.w, a: x.a, r: &r, asked: x.asked, fault: x.fault}
}

// deliverLate delivers the copy of a request after several seconds.
func (x *exchange) deliverLate() {
	late := x.copyOf()
	x.a.late.Add(1)
	x.a.underway.Go(func() {
		defer x.a.late.Add(-1)
		time.Sleep(slowness(mix(late.r.Roll, 3)))
		x.a.serve(late)
	})
}
