package providertest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
)

// bench is a hub under test. Its methods call the provider and fail the test if a call has an
// unexpected result.
type bench struct {
	*testing.T
	hub Hub
	p   provider.Provider // the currently open hub

	halt    context.CancelFunc // ends the context of Run
	stopped chan error         // receives the result of Run
	halted  time.Time          // the time at which haltInFlight ended the context, zero after Run has returned
	late    bool               // whether the last Run returned after the drain timeout, although haltInFlight ended its context
}

// start calls Run.
func (b *bench) start() {
	b.Helper()
	ctx, halt := context.WithCancel(context.WithoutCancel(b.Context()))
	b.halt, b.stopped = halt, make(chan error, 1)
	p, stopped := b.p, b.stopped
	go func() { stopped <- p.Run(ctx) }() // awaited by stop or by the test's cleanup
}

// stop ends Run's context and waits for Run to return.
func (b *bench) stop() {
	b.Helper()
	b.halt()
	b.awaitStop()
}

func (b *bench) awaitStop() {
	b.Helper()
	select {
	case err := <-b.stopped:
		if err != nil {
			b.Fatalf("Run returned %v, want nil", err)
		}
	case <-time.After(b.hub.Patience + b.hub.DrainTimeout):
		b.Fatal("Run does not return although its context has ended")
	}
	b.late, b.halt, b.halted = b.isLate(), nil, time.Time{}
}

// haltInFlight ends Run's context while work is in flight.
func (b *bench) haltInFlight() {
	b.halted = time.Now()
	b.halt()
}

// patient returns a context with the timeout for expected events.
func (b *bench) patient() (context.Context, context.CancelFunc) {
	return context.WithTimeout(b.Context(), b.hub.Patience)
}

// nextActivity returns the next activity. It fails the test if none is dispatched in time.
func (b *bench) nextActivity() *provider.ActivityWorkItem {
	b.Helper()
	ctx, cancel := b.patient()
	defer cancel()
	a, err := b.p.NextActivity(ctx)
	if err != nil {
		b.Fatalf("NextActivity: %v", err)
	}
	if a.Lock == nil || a.Task == nil || a.Attempt < 1 {
		b.Fatalf("incomplete activity: %+v", a)
	}
	return a
}

// noActivity fails the test if an activity is dispatched within hub.Quiet.
func (b *bench) noActivity(why string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), b.hub.Quiet)
	defer cancel()
	if a, err := b.p.NextActivity(ctx); err == nil {
		b.skipIfLate()
		b.Fatalf("activity %s (event %d of %q) was dispatched: %s", a.Task.Name, a.Task.EventID, a.Instance.InstanceID, why)
	}
}

// must fails the test if err is not nil.
func (b *bench) must(what string, err error) {
	b.Helper()
	if err != nil {
		b.skipIfLate()
		b.Fatalf("%s: %v", what, err)
	}
}

// skipIfLate skips a test whose work was still in flight at the drain timeout, which happens on a slow machine:
// Run may have revoked the work, and work that it could not settle is dispatched again.
func (b *bench) skipIfLate() {
	b.Helper()
	if b.late || b.isLate() {
		b.Skip("the machine was slower than the drain timeout")
	}
}

// isLate reports whether the drain timeout after haltInFlight is over, and Run has not returned.
func (b *bench) isLate() bool {
	return b.hub.IsRealTime && !b.halted.IsZero() && time.Since(b.halted) >= b.hub.DrainTimeout
}

// equal reports an error if got differs from want.
func (b *bench) equal(what string, got, want any) {
	b.Helper()
	if diff := cmp.Diff(want, got, same); diff != "" {
		b.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// runOne runs one activity, whose result is its input.
func (b *bench) runOne() error {
	ctx, cancel := b.patient()
	defer cancel()
	a, err := b.p.NextActivity(ctx)
	if err != nil {
		return err
	}
	return a.Lock.Complete(ctx, completed(a.Task.EventID, a.Task.Input))
}

// mustBeReady fails the test if the hub cannot accept work, or is busy.
func (b *bench) mustBeReady() {
	b.Helper()
	p, ok := b.p.(provider.Checker)
	if !ok {
		b.Skip("the provider does not implement Checker")
	}
	ctx, cancel := b.patient()
	defer cancel()
	b.must("Check", p.Check(ctx))
	if p.IsBusy() {
		b.Error("the task hub reports work in flight although it is idle")
	}
}

// portable returns the hub and another, empty hub for a copy.
func (b *bench) portable() (from, to provider.Portable) {
	b.Helper()
	from, ok := b.p.(provider.Portable)
	if !ok || b.hub.OpenEmpty == nil {
		b.Skip("the provider does not implement Portable, or Hub.OpenEmpty is nil")
	}
	return from, b.hub.OpenEmpty(b.T).(provider.Portable)
}

// stopIfRunning stops the hub if it is running.
func (b *bench) stopIfRunning() {
	b.Helper()
	if b.halt != nil {
		b.stop()
	}
}

func (b *bench) mustCopy(from, to provider.Portable) provider.Totals {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 2*b.hub.Patience)
	defer cancel()
	totals := b.tryCopy(ctx, from, to)
	counted, err := from.Totals(ctx)
	b.must("Totals of the source", err)
	exact, _ := from.(provider.ExactlyOnce)
	if b.hub.IsRealTime && (exact == nil || !exact.IsExactlyOnce()) { // a slow worker stops before it has deleted each message
		counted.Messages = min(counted.Messages, totals.Messages)
	}
	b.equal("totals of the source", counted, totals)
	return totals
}

// tryCopy copies a hub. It retries until the hub's workers have released their partitions. A
// worker that could not release them keeps them until its leases expire. No worker is running, so
// the hub must stay free during the copy.
func (b *bench) tryCopy(ctx context.Context, from, to provider.Portable) provider.Totals {
	b.Helper()
	for {
		totals, err := provider.CopyHub(ctx, from, to, provider.ExportOptions{}, nil)
		if !errors.Is(err, provider.ErrHubBusy) || totals != (provider.Totals{}) {
			b.must("CopyHub", err)
			return totals
		}
		select {
		case <-time.After(b.hub.Quiet):
		case <-ctx.Done():
			b.Fatalf("the task hub stays busy: %v", err)
		}
	}
}

// messagesOf returns the pending messages of a stopped hub, sorted by receiver.
func (b *bench) messagesOf(hub provider.Portable) (found []string) {
	b.Helper()
	ctx, cancel := b.patient()
	defer cancel()
	b.must("Export", hub.Export(ctx, (*messageList)(&found), provider.ExportOptions{}))
	slices.Sort(found)
	return found
}

// create starts an instance with the execution ID "execution of <id>".
func (b *bench) create(id string) history.OrchestrationInstance {
	b.Helper()
	return b.createAs(started(id, "execution of "+id, text(`"input"`)))
}

func (b *bench) createAs(start *history.ExecutionStarted) history.OrchestrationInstance {
	b.Helper()
	b.must("StartInstance", b.tryCreate(start, live))
	return start.Instance
}

// tryCreate starts an instance unless its status is in refuse. Unlike create, it may be called
// from any goroutine.
func (b *bench) tryCreate(start *history.ExecutionStarted, refuse []history.RuntimeStatus) error {
	ctx, cancel := b.patient()
	defer cancel()
	return b.p.StartInstance(ctx, provider.TaskMessage{Event: start, Target: start.Instance}, refuse)
}

func (b *bench) send(m provider.TaskMessage) {
	b.Helper()
	b.must("Send", b.trySend(m))
}

// trySend sends a message. Unlike send, it may be called from any goroutine.
func (b *bench) trySend(m provider.TaskMessage) error {
	ctx, cancel := b.patient()
	defer cancel()
	return b.p.Send(ctx, m)
}

func (b *bench) state(id string) *provider.InstanceState {
	b.Helper()
	ctx, cancel := b.patient()
	defer cancel()
	s, err := b.p.Instance(ctx, id, provider.Fetch{Input: true, Output: true})
	b.must("Instance", err)
	return s
}

func (b *bench) history(id string) []history.Event {
	b.Helper()
	ctx, cancel := b.patient()
	defer cancel()
	past, err := b.p.History(ctx, id)
	b.must("History", err)
	return past
}

// complete completes an activity.
func (b *bench) complete(a *provider.ActivityWorkItem, result history.Event) {
	b.Helper()
	ctx, cancel := b.patient()
	defer cancel()
	b.must("Complete", a.Lock.Complete(ctx, result))
}

func (b *bench) purge(id string) error {
	b.Helper()
	return b.purgeSeen(id, nil)
}

func (b *bench) purgeSeen(id string, seen *provider.InstanceState) error {
	b.Helper()
	p, ok := b.p.(provider.Purger)
	if !ok {
		b.Skip("the provider does not implement Purger")
	}
	ctx, cancel := b.patient()
	defer cancel()
	return p.Purge(ctx, id, seen)
}

func (b *bench) rewind(id, reason string) error {
	b.Helper()
	p, ok := b.p.(provider.Rewinder)
	if !ok {
		b.Skip("the provider does not implement Rewinder")
	}
	ctx, cancel := b.patient()
	defer cancel()
	return p.Rewind(ctx, id, reason)
}

// mustBeGone checks that the hub has no state and no history of an instance.
func (b *bench) mustBeGone(id string) {
	b.Helper()
	ctx, cancel := b.patient()
	defer cancel()
	if s, err := b.p.Instance(ctx, id, provider.Fetch{}); !errors.Is(err, provider.ErrInstanceNotFound) {
		b.Errorf("Instance returned %+v, %v, want %v", s, err, provider.ErrInstanceNotFound)
	}
	b.equal("history", b.history(id), []history.Event(nil))
}

// mustRefusePurge checks that Purge refuses an instance that has changed since seen was read.
func (b *bench) mustRefusePurge(id string, seen *provider.InstanceState) {
	b.Helper()
	if err := b.purgeSeen(id, seen); !errors.Is(err, provider.ErrInstanceChanged) {
		b.Fatalf("Purge returned %v, want %v", err, provider.ErrInstanceChanged)
	}
}

// refused checks that the commit of a purged instance fails, and releases the session.
func (b *bench) refused(e *episode) {
	b.Helper()
	ctx, cancel := b.patient()
	defer cancel()
	if err := e.tryCommit(ctx); !errors.Is(err, provider.ErrSessionLost) {
		b.Errorf("commit of a purged instance returned %v, want %v", err, provider.ErrSessionLost)
	}
	e.release()
}

// awaitStatus waits until an instance has a status.
func (b *bench) awaitStatus(id string, status history.RuntimeStatus) {
	b.Helper()
	ctx, cancel := b.patient()
	defer cancel()
	for b.state(id).Status != status {
		select {
		case <-ctx.Done():
			b.Fatalf("instance %q is %v, want %v", id, b.state(id).Status, status)
		case <-time.After(b.hub.Quiet / 4):
		}
	}
}

// list returns the instances of all pages of a query.
func (b *bench) list(q provider.Query) []*provider.InstanceState {
	b.Helper()
	var all []*provider.InstanceState
	for page := range b.pages(q) {
		all = append(all, page.Instances...)
	}
	return all
}

// pages iterates over all pages of a query.
func (b *bench) pages(q provider.Query) iter.Seq[*provider.Page] {
	return func(yield func(*provider.Page) bool) {
		for pages := 0; ; pages++ {
			if pages > 1000 {
				b.Fatal("the query has more than 1,000 pages")
			}
			ctx, cancel := b.patient()
			page, err := b.p.Instances(ctx, q)
			cancel()
			b.must("Instances", err)
			if q.PageSize > 0 && len(page.Instances) > q.PageSize {
				b.Errorf("a page has %d instances, want at most %d", len(page.Instances), q.PageSize)
			}
			if !yield(page) || page.Continuation == "" {
				return
			}
			if strings.Trim(page.Continuation, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
				b.Fatalf("continuation %q is not valid base64url; HTTP could change it", page.Continuation)
			}
			q.Continuation = page.Continuation
		}
	}
}

func (b *bench) listIDs(q provider.Query) []string {
	b.Helper()
	ids := b.idsOn(q)
	if q.PageSize == 0 {
		q.PageSize = 2
		b.equal("IDs on pages of 2", b.idsOn(q), ids)
	}
	return ids
}

func (b *bench) idsOn(q provider.Query) []string {
	b.Helper()
	var ids []string
	for _, s := range b.list(q) {
		ids = append(ids, s.Instance.InstanceID)
	}
	slices.Sort(ids)
	return ids
}

// startAtOnce runs several concurrent starts of one ID, together with others. The starts refuse
// instances that have not ended. It returns the number of the start that succeeded, -1 if all
// were refused.
func (b *bench) startAtOnce(id, name string, others ...func()) (winner int) {
	b.Helper()
	const racers = 6
	errs := make([]error, racers)
	for i := range racers {
		others = append(others, func() { errs[i] = b.tryCreate(started(id, fmt.Sprintf("%s %d", name, i), nil), live) })
	}
	atOnce(others...)
	winner = -1
	for i, err := range errs {
		_, exists := errors.AsType[*provider.InstanceExistsError](err)
		switch {
		case err == nil && winner >= 0:
			b.Errorf("starts %d and %d both succeeded; want one", winner, i)
		case err == nil:
			winner = i
		case !exists:
			b.Errorf("start %d: %v, want an *InstanceExistsError", i, err)
		}
	}
	return winner
}

// startSecond starts an instance with a second execution ID.
func (b *bench) startSecond(id string, refuse []history.RuntimeStatus) (history.OrchestrationInstance, error) {
	start := started(id, "second execution of "+id, text(`"again"`))
	return start.Instance, b.tryCreate(start, refuse)
}

func (b *bench) mustExist(err error, id string, status history.RuntimeStatus) {
	b.Helper()
	exists, ok := errors.AsType[*provider.InstanceExistsError](err)
	if !ok {
		b.Fatalf("StartInstance returned %v, want an *InstanceExistsError", err)
	}
	b.equal("the error", *exists, provider.InstanceExistsError{InstanceID: id, Status: status})
}

// mustKeepRunning fails the test if Run returns within hub.Quiet.
func (b *bench) mustKeepRunning(why string) {
	b.Helper()
	select {
	case err := <-b.stopped:
		b.halt = nil
		b.skipIfLate()
		b.Fatalf("Run returned %v: %s", err, why)
	case <-time.After(b.hub.Quiet):
	}
}

// checkDelays checks the delays of two redeliveries after Abandon. It does not compare the delays with
// each other, because they can be longer on a busy machine.
func (b *bench) checkDelays(delays []time.Duration) {
	b.Helper()
	first, second := b.hub.AbandonDelay, b.hub.AbandonDelay*3/2
	if delays[0] < first || delays[1] < second {
		b.Errorf("delays are %v, want at least %v and %v", delays, first, second)
	}
}

// hold abandons work several times with a [provider.RetryAtError], until the delay of the attempts
// alone would be longer than the suite waits. It checks that the work is not redelivered early. An At in
// the past redelivers it at once.
// again abandons the work with cause and returns when it is redelivered.
func (b *bench) hold(again func(cause error)) {
	b.Helper()
	short := max(b.hub.AbandonDelay, b.hub.Quiet)
	for delay := short / 2; delay < b.hub.Patience; delay *= 2 {
		again(&provider.RetryAtError{Cause: errAbandoned, At: time.Now().Add(short)})
	}
	until := time.Now().Add(3 * time.Second)
	again(&provider.RetryAtError{Cause: errAbandoned, At: until})
	if early := time.Until(until); early > time.Second { // some storages round to full seconds
		b.Errorf("the work was redelivered %v before Until", early)
	}
	again(&provider.RetryAtError{Cause: errAbandoned, At: time.Now().Add(-time.Second)})
}
